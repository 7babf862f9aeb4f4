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
      table_of<Ant<4>>("Ant-v4"),
      table_of<Ant<5>>("Ant-v5"),
      table_of<HalfCheetah<4>>("HalfCheetah-v4"),
      table_of<HalfCheetah<5>>("HalfCheetah-v5"),
      table_of<Hopper<4>>("Hopper-v4"),
      table_of<Hopper<5>>("Hopper-v5"),
      table_of<Humanoid<4>>("Humanoid-v4"),
      table_of<Humanoid<5>>("Humanoid-v5"),
      table_of<HumanoidStandup<4>>("HumanoidStandup-v4"),
      table_of<HumanoidStandup<5>>("HumanoidStandup-v5"),
      table_of<InvertedDoublePendulum<4>>("InvertedDoublePendulum-v4"),
      table_of<InvertedDoublePendulum<5>>("InvertedDoublePendulum-v5"),
      table_of<InvertedPendulum<4>>("InvertedPendulum-v4"),
      table_of<InvertedPendulum<5>>("InvertedPendulum-v5"),
      table_of<Pusher>("Pusher-v5"),
      table_of<Reacher<4>>("Reacher-v4"),
      table_of<Reacher<5>>("Reacher-v5"),
      table_of<Swimmer<4>>("Swimmer-v4"),
      table_of<Swimmer<5>>("Swimmer-v5"),
      table_of<Walker2d<4>>("Walker2d-v4"),
      table_of<Walker2d<5>>("Walker2d-v5"),
  };
  return tables;
}

}  // namespace stepmill
