"""The actions of Atari games: asking the emulator for them takes tenths of a second."""

from __future__ import annotations

from typing import NamedTuple

from stepmill.optional import ALE
from stepmill.registry import Family, add_family

__all__ = ["GAMES", "Game"]


class Game(NamedTuple):
    """How many actions a game has, and whether action 1 is FIRE."""

    num_actions: int
    has_fire: bool


_WITH_FIRE = {
    4: "atlantis atlantis2 blackjack breakout casino kaboom",
    5: "tetris",
    6: "air_raid basic_math bowling carnival demon_attack galaxian king_kong name_this_game pong pooyan qbert "
    "sir_lancelot space_invaders up_n_down",
    7: "assault",
    8: "gopher phoenix",
    9: "beam_rider enduro video_pinball",
    10: "amidar mr_do othello tic_tac_toe_3d time_pilot video_chess wizard_of_wor",
    12: "turmoil",
    14: "asteroids keystone_kapers",
    18: "adventure alien bank_heist battle_zone berzerk boxing centipede chopper_command crossbow darkchambers "
    "defender donkey_kong double_dunk earthworld elevator_action entombed et fishing_derby flag_capture frostbite "
    "gravitar hangman haunted_house hero human_cannonball ice_hockey jamesbond kangaroo klax krull laser_gates "
    "mario_bros miniature_golf montezuma_revenge pitfall pitfall2 private_eye riverraid road_runner robotank "
    "seaquest solaris space_war star_gunner superman tennis trondead venture video_cube word_zapper yars_revenge "
    "zaxxon",
}
_WITHOUT_FIRE = {
    3: "backgammon freeway skiing",
    5: "frogger pacman surround video_checkers",
    8: "tutankham",
    9: "asterix crazy_climber koolaid lost_luggage ms_pacman",
    14: "kung_fu_master",
    16: "journey_escape",
}

# By the names of their ROMs, as in ale-py 0.12.
GAMES = {
    name: Game(num_actions, has_fire)
    for has_fire, games in ((True, _WITH_FIRE), (False, _WITHOUT_FIRE))
    for num_actions, names in games.items()
    for name in names.split()
}

add_family(Family(ALE, ("ALE/.*",)))
