// How the leaves of a space are nested as Python objects: a leaf, a tuple or a dict.
#pragma once

#include <nanobind/nanobind.h>

#include <string>
#include <utility>
#include <vector>

#include "bindings/python/errors.h"

namespace stepmill {

class TreeNode {
 public:
  // From Python: an int is the index of a leaf (negative: -1 - k is the k-th leaf that holds Python objects, which the
  // engine does not handle); a tuple or a dict holds more nodes.
  explicit TreeNode(nanobind::handle description) {
    if (PyTuple_Check(description.ptr())) {
      kind_ = Kind::kTuple;
      for (nanobind::handle child : nanobind::borrow<nanobind::tuple>(description))
        children_.emplace_back(child);
    } else if (PyDict_Check(description.ptr())) {
      kind_ = Kind::kDict;
      for (auto [key, child] : nanobind::borrow<nanobind::dict>(description)) {
        nanobind::object interned = nanobind::borrow(key);
        if (PyUnicode_CheckExact(key.ptr())) {
          PyObject* raw = interned.release().ptr();
          PyUnicode_InternInPlace(&raw);
          interned = nanobind::steal(raw);
        }
        labels_.push_back(text_of(nanobind::repr(interned)));
        keys_.push_back(std::move(interned));
        children_.emplace_back(child);
      }
    } else {
      leaf_ = nanobind::cast<int>(description);
    }
  }

  bool is_leaf() const { return kind_ == Kind::kLeaf; }
  bool is_dict() const { return kind_ == Kind::kDict; }
  int leaf() const { return leaf_; }
  const std::vector<TreeNode>& children() const { return children_; }
  const std::vector<nanobind::object>& keys() const { return keys_; }

  // Makes the Python object, with `make(leaf)` (a new reference, or null on error) for the leaves, and `object(k)` for
  // those that hold Python objects: None if they are filled in later.
  template <class F>
  PyObject* build(const F& make) const {
    return build(make, [](int) { return Py_NewRef(Py_None); });
  }
  template <class F, class G>
  PyObject* build(const F& make, const G& object) const {
    if (is_leaf()) return leaf_ < 0 ? object(-1 - leaf_) : make(leaf_);
    if (kind_ == Kind::kTuple) {
      PyObject* out = PyTuple_New(static_cast<Py_ssize_t>(children_.size()));
      for (std::size_t i = 0; out && i < children_.size(); ++i) {
        PyObject* child = children_[i].build(make, object);
        if (!child) Py_CLEAR(out);
        else PyTuple_SET_ITEM(out, static_cast<Py_ssize_t>(i), child);
      }
      return out;
    }
    PyObject* out = PyDict_New();
    for (std::size_t i = 0; out && i < children_.size(); ++i) {
      PyObject* child = children_[i].build(make, object);
      if (!child || PyDict_SetItem(out, keys_[i].ptr(), child) != 0) Py_CLEAR(out);
      Py_XDECREF(child);
    }
    return out;
  }

  // The keys of a dict, for messages.
  std::string key_list() const {
    std::string out;
    for (const auto& label : labels_) out += (out.empty() ? "" : ", ") + label;
    return out;
  }

  // Takes a value apart that is nested like this, and calls `take(leaf, part, path)` for each array in it. Leaves that hold
  // Python objects are left out: the host takes them to the envs. `path` is where the value is: "['a'][0]". Calls
  // `refuse(path, text)`, which raises, if a part is missing or, with `only_these`, if a nested dict has other keys too.
  template <class F, class G>
  void take_apart(nanobind::handle value, const std::string& path, bool only_these, const F& take, const G& refuse) const {
    // Parts are references of our own, since user code that runs meanwhile may change a list or a dict.
    if (is_leaf()) {
      if (leaf_ >= 0) take(leaf_, value, path);
    } else if (kind_ == Kind::kTuple) {
      const nanobind::object items = nanobind::steal(PySequence_Tuple(value.ptr()));
      if (!items.is_valid() || PyTuple_GET_SIZE(items.ptr()) != static_cast<Py_ssize_t>(children_.size())) {
        forget_error();
        refuse(path, "expected a tuple of " + std::to_string(children_.size()) + " parts, got " + describe_object(value));
      }
      for (std::size_t i = 0; i < children_.size(); ++i)
        children_[i].take_apart(PyTuple_GET_ITEM(items.ptr(), static_cast<Py_ssize_t>(i)),
                                path + "[" + std::to_string(i) + "]", only_these, take, refuse);
    } else {
      const auto expected = [&] { return keys_.empty() ? "expected an empty dict" : "expected a dict with the keys " + key_list(); };
      if (!PyDict_Check(value.ptr())) refuse(path, expected() + ", got " + describe_object(value));
      for (std::size_t i = 0; i < children_.size(); ++i) {
        const nanobind::object part = nanobind::borrow(PyDict_GetItemWithError(value.ptr(), keys_[i].ptr()));
        if (!part.is_valid()) forget_error();
        if (!part.is_valid()) refuse(path, expected() + ", got one without " + labels_[i]);
        children_[i].take_apart(part, path + "[" + labels_[i] + "]", only_these, take, refuse);
      }
      if (only_these && !path.empty() && PyDict_Size(value.ptr()) != static_cast<Py_ssize_t>(children_.size()))
        refuse(path, (keys_.empty() ? "expected an empty dict" : "expected only the keys " + key_list()) + ", got " + keys_in(value));
    }
  }

 private:
  enum class Kind { kLeaf, kTuple, kDict };

  Kind kind_ = Kind::kLeaf;
  int leaf_ = 0;
  std::vector<TreeNode> children_;
  std::vector<nanobind::object> keys_;
  std::vector<std::string> labels_;  // the keys in messages: made once, since paths are made in every step
};

}  // namespace stepmill
