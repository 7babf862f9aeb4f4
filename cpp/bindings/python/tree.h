// How the leaves of a space are nested as Python objects: a leaf, a tuple or a dict.
#pragma once

#include <nanobind/nanobind.h>

#include <string>
#include <utility>
#include <vector>

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

 private:
  enum class Kind { kLeaf, kTuple, kDict };

  Kind kind_ = Kind::kLeaf;
  int leaf_ = 0;
  std::vector<TreeNode> children_;
  std::vector<nanobind::object> keys_;
};

}  // namespace stepmill
