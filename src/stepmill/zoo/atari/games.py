"""The Atari games that ale-py carries, and what can be known of them without the emulator, which takes 0.2 s to ask."""

from __future__ import annotations

from typing import NamedTuple

WIDTH = 160  # of every screen
_JOYSTICK = 18  # actions that a joystick has, with full_action_space
_WITHOUT_BUTTON = 9  # those of the two games for which ale-py knows no FIRE at all


class Game(NamedTuple):
    """A game by the name of its ROM. ``has_fire``: FIRE is one of its own actions.

    ``height`` is that of its screen.
    """

    rom: str
    num_actions: int
    has_fire: bool
    height: int

    @property
    def name(self) -> str:
        """The name in ``MsPacman-v5``."""
        return "".join(part.capitalize() for part in self.rom.split("_"))

    @property
    def ale_name(self) -> str:
        """The name in ``ALE/MsPacman-v5``."""
        return self.rom.title().replace("_", "")

    def action_count(self, full_action_space: bool) -> int:
        """How many actions there are."""
        if not full_action_space:
            return self.num_actions
        return _WITHOUT_BUTTON if self.rom in ("lost_luggage", "skiing") else _JOYSTICK

    def fires(self, full_action_space: bool) -> bool:
        """Whether one of the actions is FIRE."""
        return self.action_count(True) == _JOYSTICK if full_action_space else self.has_fire


_WITH_FIRE = {
    3: "backgammon",
    4: "atlantis atlantis2 blackjack breakout casino kaboom",
    5: "tetris video_checkers",
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
    3: "freeway skiing",
    5: "frogger pacman surround",
    8: "tutankham",
    9: "asterix crazy_climber koolaid lost_luggage ms_pacman",
    14: "kung_fu_master",
    16: "journey_escape",
}
_HEIGHTS = {  # 210 for all others
    214: "carnival",
    220: "pooyan",
    230: "journey_escape",
    250: "adventure air_raid keystone_kapers king_kong klax laser_gates mr_do pacman sir_lancelot space_war",
}
_HEIGHT_OF = {rom: height for height, roms in _HEIGHTS.items() for rom in roms.split()}

# By the names of their ROMs, as in ale-py 0.12.
GAMES = {
    rom: Game(rom, num_actions, has_fire, _HEIGHT_OF.get(rom, 210))
    for has_fire, games in ((True, _WITH_FIRE), (False, _WITHOUT_FIRE))
    for num_actions, roms in games.items()
    for rom in roms.split()
}


def id_patterns() -> tuple[str, ...]:
    """The ids that some version of ale-py registers with Gymnasium."""
    names = "|".join(sorted(game.ale_name for game in GAMES.values()))
    return "ALE/.*", f"(?:{names})(?:-ram)?(?:Deterministic|NoFrameskip)?-v[04]"
