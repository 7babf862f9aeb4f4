// Station 5: turns a finished batch into numpy arrays that the caller owns.
//
// The arrays are views of the batch's buffer. They share one owner object; when the last array, slice or memoryview is
// gone, the owner returns the buffer to its store.
#pragma once

#include <nanobind/nanobind.h>

#include <vector>

#include "bindings/input/players.h"
#include "bindings/python/tree.h"
#include "core/pool.h"

namespace stepmill {

// Creates the owner type. Called once, when the module is imported.
void register_owner_type(nanobind::module_& module);

class BatchOutput {
 public:
  // `players`: is told what every batch shows of them.
  BatchOutput(const Pool& pool, Players& players, TreeNode observation_tree);

  // (obs, reward, terminated, truncated, info)
  nanobind::object step_result(Batch batch, const std::vector<Fault>& faults);
  // Whether infos say which env each row belongs to, even if every env has one player.
  void show_players(bool always);
  bool shows_players() const { return always_players_; }

 private:
  struct ArrayForm {
    int type;
    std::vector<Py_ssize_t> shape;  // of a row
    std::int64_t row_bytes;
    std::int32_t player_kind;
  };
  // The players that have rows in a batch, in the order of the rows.
  struct PlayerColumns {
    std::vector<std::int32_t> env, id;
    std::vector<std::uint8_t> terminated, truncated;
    std::vector<std::vector<std::int64_t>> rows;  // by kind: where its players are in the columns above
  };
  struct InfoKey {
    nanobind::object key, mask;
    ArrayForm form;
  };
  struct Handout;  // one batch on its way out
  // The env's own infos of the rows of a batch, or of the episodes that ended in it.
  struct OwnInfos {
    void* const* columns;
    const std::uint8_t* present;  // as in sm_columns
    const std::uint8_t* among;    // flags of the rows that can have infos; null: all
    nanobind::object all;         // the mask of these rows
  };

  PyObject* observation(const Handout& out, void* const* columns) const;
  PyObject* final_observations(const Handout& out) const;
  PyObject* reward(const Handout& out) const;
  PyObject* info(const Handout& out, const std::vector<Fault>& faults) const;
  PyObject* players(const Handout& out, nanobind::object ids) const;
  nanobind::object info_template(bool with_ends) const;
  void add_own(const Handout& out, PyObject* info, const OwnInfos& own) const;
  void add_faults(const Handout& out, PyObject* info, const std::vector<Fault>& faults) const;
  nanobind::object true_mask(std::int32_t rows) const;
  nanobind::object flags(const Handout& out, const std::uint8_t* values, std::uint8_t* column) const;
  nanobind::object env_ids(const Handout& out) const;
  PlayerColumns pack_players(const Batch& batch) const;
  void move_player(const sm_columns& c, std::int64_t row, std::int32_t player, const PlayerColumns& packed) const;

  const Pool& pool_;
  Players& players_;
  TreeNode observation_tree_;
  bool always_players_ = false, with_players_ = false;
  std::vector<ArrayForm> observation_forms_;
  std::vector<InfoKey> info_keys_;
  // The same for every full batch, so they are made once and shared, read-only.
  nanobind::object all_ids_, all_true_;
  // Info dicts with all their keys, and with the two above as values. Copying one and setting the other values is cheaper
  // than a dict that grows key by key.
  nanobind::object players_template_, plain_template_, ends_template_;
};

}  // namespace stepmill
