#include "envs/catalogue.h"

#include <vector>

#include "core/table_of.h"
#include "envs/classic/acrobot.h"
#include "envs/classic/cartpole.h"
#include "envs/classic/mountain_car.h"
#include "envs/classic/mountain_car_continuous.h"
#include "envs/classic/pendulum.h"
#include "envs/debug/players.h"
#include "envs/debug/probe.h"
#include "envs/debug/template.h"
#include "envs/hybrid/moving.h"
#include "envs/hybrid/sliding.h"
#include "envs/mujoco/catalogue.h"
#include "envs/toy/blackjack.h"
#include "envs/toy/catch.h"
#include "envs/toy/cliff_walking.h"
#include "envs/toy/frozen_lake.h"
#include "envs/toy/nchain.h"
#include "envs/toy/taxi.h"

namespace stepmill {

std::span<const sm_env_table* const> catalogue() {
  static const std::vector<const sm_env_table*> tables = [] {
    std::vector<const sm_env_table*> all = {
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
        table_of<Moving>("Moving"),
        table_of<Sliding>("Sliding"),
        table_of<Probe>("Probe"),
        table_of<Template>("Template"),
        table_of<TemplatePlayers>("TemplatePlayers"),
    };
    const auto mujoco = mujoco_catalogue();
    all.insert(all.end(), mujoco.begin(), mujoco.end());
    return all;
  }();
  return tables;
}

}  // namespace stepmill
