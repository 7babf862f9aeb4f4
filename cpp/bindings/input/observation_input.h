// Writes the observation of a Python env into the rows of a batch, after checking its shape, type and keys.
#pragma once

#include <nanobind/nanobind.h>

#include <functional>
#include <string>

#include "bindings/python/tree.h"
#include "core/env/spec.h"

namespace stepmill {

class ObservationInput {
 public:
  ObservationInput(const std::vector<Leaf>& leaves, TreeNode tree) : leaves_(leaves), tree_(std::move(tree)) {}

  // Writes every leaf to `to(leaf)`, or raises an error that names the env, the part, what was expected and what it
  // got. Casts values if that cannot change them.
  template <class To>
  void write(nanobind::handle observation, int env, const To& to) const {
    visit(tree_, observation, env, "", to);
  }

  const std::vector<Leaf>& leaves() const { return leaves_; }

 private:
  using Target = std::function<std::byte*(int leaf)>;

  void visit(const TreeNode& node, nanobind::handle value, int env, const std::string& path, const Target& to) const;

  const std::vector<Leaf> leaves_;
  const TreeNode tree_;
};

}  // namespace stepmill
