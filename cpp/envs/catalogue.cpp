#include "envs/catalogue.h"

#include "core/table_of.h"
#include "envs/classic/acrobot.h"
#include "envs/classic/cartpole.h"
#include "envs/classic/mountain_car.h"
#include "envs/classic/mountain_car_continuous.h"
#include "envs/classic/pendulum.h"
#include "envs/debug/probe.h"
#include "envs/debug/template.h"
#include "envs/mujoco/ant.h"
#include "envs/mujoco/half_cheetah.h"
#include "envs/toy/blackjack.h"
#include "envs/toy/catch.h"
#include "envs/toy/cliff_walking.h"
#include "envs/toy/frozen_lake.h"
#include "envs/toy/nchain.h"
#include "envs/toy/taxi.h"

namespace stepmill {

std::span<const sm_env_table* const> catalogue() {
  static const sm_env_table* const tables[] = {
      table_of<CartPole>("CartPole"),
      table_of<Pendulum>("Pendulum"),
      table_of<MountainCar>("MountainCar"),
      table_of<MountainCarContinuous>("MountainCarContinuous"),
      table_of<Acrobot>("Acrobot"),
      table_of<FrozenLake>("FrozenLake"),
      table_of<CliffWalking>("CliffWalking"),
      table_of<Taxi>("Taxi"),
      table_of<Blackjack>("Blackjack"),
      table_of<Catch>("Catch"),
      table_of<NChain>("NChain"),
      table_of<Ant<4>>("Ant-v4"),
      table_of<Ant<5>>("Ant-v5"),
      table_of<HalfCheetah<4>>("HalfCheetah-v4"),
      table_of<HalfCheetah<5>>("HalfCheetah-v5"),
      table_of<Probe>("Probe"),
      table_of<Template>("Template"),
  };
  return tables;
}

}  // namespace stepmill
