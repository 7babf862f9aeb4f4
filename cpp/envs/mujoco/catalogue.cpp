#include "envs/mujoco/catalogue.h"

#include "core/table_of.h"
#include "envs/mujoco/ant.h"
#include "envs/mujoco/half_cheetah.h"
#include "envs/mujoco/hopper.h"
#include "envs/mujoco/humanoid.h"
#include "envs/mujoco/humanoid_standup.h"
#include "envs/mujoco/inverted_double_pendulum.h"
#include "envs/mujoco/inverted_pendulum.h"
#include "envs/mujoco/pusher.h"
#include "envs/mujoco/reacher.h"
#include "envs/mujoco/swimmer.h"
#include "envs/mujoco/walker2d.h"

namespace stepmill {

std::span<const sm_env_table* const> mujoco_catalogue() {
  static const sm_env_table* const tables[] = {
      table_of<SavedTask<Ant<4>>>("Ant-v4"),
      table_of<SavedTask<Ant<5>>>("Ant-v5"),
      table_of<SavedTask<HalfCheetah<4>>>("HalfCheetah-v4"),
      table_of<SavedTask<HalfCheetah<5>>>("HalfCheetah-v5"),
      table_of<SavedTask<Hopper<4>>>("Hopper-v4"),
      table_of<SavedTask<Hopper<5>>>("Hopper-v5"),
      table_of<SavedTask<Humanoid<4>>>("Humanoid-v4"),
      table_of<SavedTask<Humanoid<5>>>("Humanoid-v5"),
      table_of<SavedTask<HumanoidStandup<4>>>("HumanoidStandup-v4"),
      table_of<SavedTask<HumanoidStandup<5>>>("HumanoidStandup-v5"),
      table_of<SavedTask<InvertedDoublePendulum<4>>>("InvertedDoublePendulum-v4"),
      table_of<SavedTask<InvertedDoublePendulum<5>>>("InvertedDoublePendulum-v5"),
      table_of<SavedTask<InvertedPendulum<4>>>("InvertedPendulum-v4"),
      table_of<SavedTask<InvertedPendulum<5>>>("InvertedPendulum-v5"),
      table_of<SavedTask<Pusher>>("Pusher-v5"),
      table_of<SavedTask<Reacher<4>>>("Reacher-v4"),
      table_of<SavedTask<Reacher<5>>>("Reacher-v5"),
      table_of<SavedTask<Swimmer<4>>>("Swimmer-v4"),
      table_of<SavedTask<Swimmer<5>>>("Swimmer-v5"),
      table_of<SavedTask<Walker2d<4>>>("Walker2d-v4"),
      table_of<SavedTask<Walker2d<5>>>("Walker2d-v5"),
  };
  return tables;
}

}  // namespace stepmill
