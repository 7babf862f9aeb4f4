// Taxi-v4, and Taxi-v3 by `version`: fetch a passenger and bring him where he wants to go. In rain
// the taxi drifts sideways; a fickle passenger may change his mind once on the way.
#pragma once

#include <stdexcept>
#include <string>

#include <stepmill/env.h>
#include "envs/toy/categorical.h"
#include "envs/toy/taxi_town.h"

namespace stepmill {

class Taxi {
 public:
  static constexpr bool kNeverBlocks = true;
  static constexpr bool kPlainMemory = true;

  static std::vector<ConfigItem> configuration() {
    return {{"is_rainy", false},
            {"fickle_passenger", false},
            {"rainy_probability", 0.8},  // of driving as meant, in rain
            {"fickle_probability", 0.3},
            {"version", std::int64_t{4}}};  // 3: rain as in Gymnasium before 1.3
  }

  static EnvSpec spec(const Config& config) {
    const std::int64_t version = config.integer("version");
    if (version != 3 && version != 4)
      throw std::invalid_argument("version: expected 3 or 4, got " + std::to_string(version));
    if (version == 3 && config.real("rainy_probability") != 0.8)
      throw std::invalid_argument("rainy_probability: Taxi-v3 knows only 0.8, got " +
                                  std::to_string(config.real("rainy_probability")));
    EnvSpec spec;
    spec.observation = {discrete(TaxiTown::kStates)};
    spec.action = {discrete(6)};
    spec.info = {box<double>({}, {0.0}, {1.0}, "prob"),
                 box<std::int8_t>({6}, {0.0}, {1.0}, "action_mask")};
    return spec;
  }

  explicit Taxi(const Config& config)
      : rain_(rain_of(config)),
        drift_(drift_of(config)),
        is_rainy_(config.flag("is_rainy")),
        can_be_fickle_(config.flag("fickle_passenger")),
        fickle_probability_(config.real("fickle_probability")) {}

  void reset(Rng& rng, const Options&) {
    const int state = town().start.draw(rng.random());
    destination_ = state % TaxiTown::kPlaces;
    passenger_ = state / TaxiTown::kPlaces % (TaxiTown::kPlaces + 1);
    cell_ = state / TaxiTown::kPlaces / (TaxiTown::kPlaces + 1);
    last_action_ = -1;
    probability_ = 1.0;
    will_change_mind_ = can_be_fickle_ && rng.random() < fickle_probability_;
  }

  Outcome step(const ActionRow& action, Rng& rng) {
    const double number = rng.random();  // drawn for every action, in any weather
    const int choice = last_action_ = static_cast<int>(action.index());
    probability_ = 1.0;
    if (choice == kPickUp) return pick_up();
    if (choice == kDropOff) return drop_off();
    drive(choice, number, rng);
    return {-1.0, false, false};
  }

  void observe(const Row& row) const {
    *row.observation<std::int64_t>() = TaxiTown::encode(cell_, passenger_, destination_);
    *row.info<double>(0) = probability_;
    std::int8_t* mask = row.info<std::int8_t>(1);
    const TaxiTown& town = this->town();  // once: bytes of the mask could be its number
    const int cell = cell_;
    for (int move = 0; move < TaxiTown::kMoves; ++move) mask[move] = town.is_open(cell, move);
    const int place = TaxiTown::place_at(cell_);
    const bool at_place = place != TaxiTown::kPlaces;
    mask[kPickUp] = at_place && passenger_ == place;
    mask[kDropOff] = at_place && passenger_ == TaxiTown::kInTaxi;
  }

  void picture(std::vector<double>& numbers) const {
    numbers.insert(numbers.end(), {static_cast<double>(TaxiTown::encode(cell_, passenger_, destination_)),
                                   static_cast<double>(last_action_)});
  }

 private:
  static constexpr int kPickUp = 4, kDropOff = 5;

  const TaxiTown& town() const { return TaxiTown::with(rain_); }

  static TaxiTown::Rain rain_of(const Config& config) {
    if (!config.flag("is_rainy")) return TaxiTown::Rain::kNone;
    return config.integer("version") == 3 ? TaxiTown::Rain::kTaxi3 : TaxiTown::Rain::kTaxi4;
  }

  static ThreeWay drift_of(const Config& config) {
    const double as_meant = config.real("rainy_probability");
    // Written out in Taxi-v3: the formula gives 0.1 less the rounding of 1 - 0.8.
    const double aside = config.integer("version") == 3 ? 0.1 : (1.0 - as_meant) / 2.0;
    return {as_meant, aside, aside};
  }

  Outcome pick_up() {
    if (passenger_ == TaxiTown::kInTaxi || TaxiTown::kPlace[passenger_] != cell_)
      return {-10.0, false, false};
    passenger_ = TaxiTown::kInTaxi;
    return {-1.0, false, false};
  }

  Outcome drop_off() {
    const int place = TaxiTown::place_at(cell_);
    if (place == TaxiTown::kPlaces || passenger_ != TaxiTown::kInTaxi) return {-10.0, false, false};
    passenger_ = place;
    if (place == destination_) return {20.0, true, false};
    return {-1.0, false, false};
  }

  void drive(int move, double number, Rng& rng) {
    int drift = 0;
    if (is_rainy_) {
      drift = drift_.draw(number);
      probability_ = drift_.probability(drift);
    }
    const int from = cell_;
    cell_ = town().target(from, move, drift);
    if (will_change_mind_ && passenger_ == TaxiTown::kInTaxi && cell_ != from) {
      will_change_mind_ = false;
      const int other = static_cast<int>(rng.integers(0, TaxiTown::kPlaces - 1));
      destination_ = other + (other >= destination_);  // any place but the old one
    }
  }

  TaxiTown::Rain rain_;
  ThreeWay drift_;
  bool is_rainy_, can_be_fickle_;
  double fickle_probability_;
  int cell_ = 0, passenger_ = 0, destination_ = 0;
  bool will_change_mind_ = false;
  int last_action_ = -1;  // only to be drawn; -1: none in this episode
  double probability_ = 1.0;
};

}  // namespace stepmill
