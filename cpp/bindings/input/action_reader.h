// Checks the actions of envs that have no slots here, because they live on a device: as the engine checks those of its own.
#pragma once

#include <nanobind/nanobind.h>

#include <memory>

#include "bindings/input/action_input.h"

namespace stepmill {

class ActionReader {
 public:
  // `spec` and `action_tree` as for envs in Python, `bounds`: one of `Bounds`.
  ActionReader(int num_envs, bool is_disabled, nanobind::handle spec, nanobind::handle action_tree, int bounds);
  ~ActionReader();

  // Reads what `send` was given. Returns the ids of the envs that it is for; None: all of them, in order.
  nanobind::object read(nanobind::handle action, nanobind::handle env_id);
  // The same for ids alone; None: all of them.
  nanobind::object read_envs(nanobind::handle env_id);
  // For each array of an action, the rows of all envs. The next `read` writes to them.
  nanobind::list rows(nanobind::handle self) const;

  // What `read` and `read_envs` refuse to act on: envs by id, None: all.
  void set_in_flight(nanobind::handle env_ids, bool is_in_flight);
  void set_over(nanobind::handle flags);  // by env, whether its episode is over

 private:
  class Table;

  nanobind::object ids_of(std::span<const std::int32_t> envs) const;

  std::unique_ptr<Table> table_;
  Players players_;
  std::vector<std::int32_t> all_envs_;
  ActionInput input_;
};

void register_action_reader(nanobind::module_& m);

}  // namespace stepmill
