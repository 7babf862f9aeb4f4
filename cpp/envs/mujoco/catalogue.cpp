#include "envs/mujoco/catalogue.h"

#include "core/table_of.h"
#include "envs/mujoco/ant.h"
#include "envs/mujoco/half_cheetah.h"

namespace stepmill {

std::span<const sm_env_table* const> mujoco_catalogue() {
  static const sm_env_table* const tables[] = {
      table_of<Ant<4>>("Ant-v4"),
      table_of<Ant<5>>("Ant-v5"),
      table_of<HalfCheetah<4>>("HalfCheetah-v4"),
      table_of<HalfCheetah<5>>("HalfCheetah-v5"),
  };
  return tables;
}

}  // namespace stepmill
