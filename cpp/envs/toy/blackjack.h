// Blackjack-v1: hit or stick against a dealer who draws to 17. Cards come from an endless deck.
#pragma once

#include <algorithm>

#include <stepmill/env.h>

namespace stepmill {

class Blackjack {
 public:
  static constexpr bool kNeverBlocks = true;
  static constexpr bool kPlainMemory = true;

  static std::vector<ConfigItem> configuration() {
    return {{"natural", false},  // a natural that wins pays 1.5
            {"sab", false}};     // rules of Sutton and Barto; overrides `natural`
  }

  static EnvSpec spec(const Config&) {
    EnvSpec spec;
    spec.observation = {discrete(32, "0"), discrete(11, "1"), discrete(2, "2")};
    spec.observation_tree = Tree::kTuple;
    spec.action = {discrete(2)};
    return spec;
  }

  explicit Blackjack(const Config& config)
      : natural_pays_more_(config.flag("natural")), sutton_barto_(config.flag("sab")) {}

  void reset(Rng& rng, const Options&) {
    dealer_ = {};
    player_ = {};
    shown_ = draw_card(rng);
    dealer_.add(shown_);
    dealer_.add(draw_card(rng));
    player_.add(draw_card(rng));
    player_.add(draw_card(rng));
    // Gymnasium's env also draws how the shown card looks: its suit, and a ten's face.
    suit_ = static_cast<int>(rng.integers(0, 4));
    if (shown_ == 10) face_ = static_cast<int>(rng.integers(0, 3));
  }

  Outcome step(const ActionRow& action, Rng& rng) {
    if (action.index() == 1) {
      player_.add(draw_card(rng));
      const bool bust = player_.value() > 21;
      return {bust ? -1.0 : 0.0, bust, false};
    }
    while (dealer_.value() < 17) dealer_.add(draw_card(rng));
    return {payout(), true, false};
  }

  void observe(const Row& row) const {
    *row.observation<std::int64_t>(0) = player_.value();
    *row.observation<std::int64_t>(1) = shown_;
    *row.observation<std::int64_t>(2) = player_.has_usable_ace();
  }

  void picture(std::vector<double>& numbers) const {
    for (const int number : {player_.sum, static_cast<int>(player_.has_ace), shown_, suit_, face_})
      numbers.push_back(number);
  }

 private:
  struct Hand {
    int sum = 0, cards = 0;
    bool has_ace = false;

    void add(int card) {
      sum += card;
      cards += 1;
      has_ace |= card == 1;
    }
    bool has_usable_ace() const { return has_ace && sum <= 11; }  // one ace counts 11
    int value() const { return has_usable_ace() ? sum + 10 : sum; }
    int score() const { return value() > 21 ? 0 : value(); }
    bool is_natural() const { return cards == 2 && value() == 21; }
  };

  // 1 is an ace; jack, queen and king count 10.
  static int draw_card(Rng& rng) { return std::min(static_cast<int>(rng.integers(0, 13)) + 1, 10); }

  double payout() const {
    const int mine = player_.score(), theirs = dealer_.score();
    if (sutton_barto_ && player_.is_natural() && !dealer_.is_natural()) return 1.0;
    if (mine < theirs) return -1.0;
    if (mine == theirs) return 0.0;
    return !sutton_barto_ && natural_pays_more_ && player_.is_natural() ? 1.5 : 1.0;
  }

  bool natural_pays_more_, sutton_barto_;
  Hand dealer_, player_;
  int shown_ = 0;  // the dealer's first card
  int suit_ = 0, face_ = 0;
};

}  // namespace stepmill
