"""A policy that knows the town: about the best that an agent could learn."""

from __future__ import annotations

from .world import Verb, World

__all__ = ["pilot"]


def pilot(world: World) -> Verb:
    """Makes the nearest delivery that the battery allows, and charges fully whenever it is at a charger."""
    if world.at_charger and world.battery < world.config.capacity:
        return Verb.CHARGE
    if world.carried is not None:
        ways = world.carried.to_address
    else:
        next_one = min(world.waiting, key=lambda package: package.to_origin[world.cell])
        need = next_one.to_origin[world.cell] + 2 + 2 * next_one.to_address[next_one.origin]
        enough = need + world.town.to_charger[next_one.address] <= world.battery
        ways = next_one.to_origin if enough else world.town.to_charger
    if ways[world.cell] == 0:
        return Verb.HANDLE
    compass = (Verb.NORTH, Verb.EAST, Verb.SOUTH, Verb.WEST)
    return min(compass, key=lambda verb: ways[world.town.neighbours[world.cell][verb]])
