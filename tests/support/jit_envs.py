# ruff: noqa: RUF012
"""Envs for ``stepmill.jit``: two of Gymnasium's, and one that has everything else."""

import math

import numpy as np
from gymnasium import spaces

import stepmill

_BOUNDS = np.array([4.8, np.inf, 24 * math.pi / 180, np.inf], np.float32)


@stepmill.jit
class CartPole:
    """Gymnasium's, operation by operation."""

    observation_space = spaces.Box(-_BOUNDS, _BOUNDS)
    action_space = spaces.Discrete(2)
    state = [("x", np.float64), ("x_dot", np.float64), ("theta", np.float64), ("theta_dot", np.float64)]
    options = {"low": -0.05, "high": 0.05}

    gravity = 9.8
    total_mass = 1.1
    length = 0.5
    pole_mass_length = 0.05
    tau = 0.02

    def reset(self, random, options):
        self.x = random.uniform(options.low, options.high)
        self.x_dot = random.uniform(options.low, options.high)
        self.theta = random.uniform(options.low, options.high)
        self.theta_dot = random.uniform(options.low, options.high)

    def step(self, action, random):
        force = 10.0 if action == 1 else -10.0
        cosine, sine = math.cos(self.theta), math.sin(self.theta)
        temp = (force + self.pole_mass_length * (self.theta_dot * self.theta_dot) * sine) / self.total_mass
        theta_acc = (self.gravity * sine - cosine * temp) / (
            self.length * (4.0 / 3.0 - 0.1 * (cosine * cosine) / self.total_mass)
        )
        x_acc = temp - self.pole_mass_length * theta_acc * cosine / self.total_mass
        self.x += self.tau * self.x_dot
        self.x_dot += self.tau * x_acc
        self.theta += self.tau * self.theta_dot
        self.theta_dot += self.tau * theta_acc
        return 1.0, self.has_fallen(), False

    def has_fallen(self):
        limit = 12 * 2 * math.pi / 360
        return self.x < -2.4 or self.x > 2.4 or self.theta < -limit or self.theta > limit

    def observe(self, observation):
        observation[0] = self.x
        observation[1] = self.x_dot
        observation[2] = self.theta
        observation[3] = self.theta_dot


def angle_normalize(x):
    return ((x + math.pi) % (2 * math.pi)) - math.pi


@stepmill.jit
class Pendulum:
    """A pendulum whose numbers go through powers and remainders."""

    observation_space = spaces.Box(np.float32([-1, -1, -8]), np.float32([1, 1, 8]))
    action_space = spaces.Box(-2.0, 2.0, (1,), np.float32)
    state = [("theta", np.float64), ("speed", np.float64), ("torque", np.float32)]
    settings = {"g": 10.0, "m": 1.0, "steps": 200, "noisy": False}
    info = {"torque": spaces.Box(-2.0, 2.0, (), np.float32)}

    def reset(self, random):
        self.theta = random.uniform(-math.pi, math.pi)
        self.speed = random.uniform(-1.0, 1.0)
        self.torque = 0.0

    def step(self, action, random):
        u = min(max(action[0], -2.0), 2.0)
        if self.noisy:
            u += 0.1 * random.normal() + 0.01 * random.integer(-3, 4)
        self.torque = u
        costs = angle_normalize(self.theta) ** 2 + 0.1 * self.speed**2 + 0.001 * u**2
        new = self.speed + (3 * self.g / 2 * math.sin(self.theta) + 3.0 / self.m * self.torque) * 0.05
        self.speed = min(max(new, -8.0), 8.0)
        self.theta += self.speed * 0.05
        return -costs, False, False

    def observe(self, observation, info):
        observation[0] = math.cos(self.theta)
        observation[1] = math.sin(self.theta)
        observation[2] = self.speed
        info.torque[...] = self.torque


@stepmill.jit
class Board:
    """Arrays in its state, several arrays as actions and observations, and every way to fail."""

    observation_space = spaces.Dict(
        cells=spaces.Box(0, 9, (2, 3), np.int8), bits=spaces.MultiBinary(3), at=spaces.Discrete(6, start=1)
    )
    action_space = spaces.Tuple([spaces.Discrete(6, start=1), spaces.MultiDiscrete([3, 4])])
    state = [("cells", np.int8, (2, 3)), ("at", np.int64), ("scratch", np.float64, (4,))]
    settings = {"fault": 0, "limit": 20}
    weights = (0.5, 0.25)
    table = np.float32([0.1, 0.2, 0.3])

    def init(self):
        self.scratch[0] = self.limit / 2

    def reset(self, random):
        self.cells[...] = 0
        self.at = random.integer(1, 7)
        if self.fault == 1:
            raise ValueError("cannot be reset")

    def step(self, action, random):
        place, two = action
        row, column = divmod(place - 1, 3)
        self.cells[row, column] = (self.cells[row, column] + two[0] + two[1]) % 10
        self.at = place
        self.scratch[1:3] += np.array([1.0, 2.0]) * self.weights[0]
        zero = self.cells[0, 0] * 0
        if self.fault == 2:
            return 1.0 / zero, False, False
        if self.fault == 3:
            return self.scratch[place + 10], False, False
        if self.fault == 4:
            return math.log(zero), False, False
        if self.fault == 5:
            raise ValueError(f"place {place}")
        total = 0
        for value in self.cells[row]:
            total += value
        return total * self.weights[1] + self.scratch[0] + self.table[column] * 0.1, total > self.limit, False

    def observe(self, observation):
        observation.cells[...] = self.cells
        for i in range(3):
            observation.bits[i] = self.cells[0, i] > 0
        observation.at[...] = self.at


@stepmill.jit
class Formulas:
    """Writes what every function that may be used makes of two numbers."""

    observation_space = spaces.Box(-np.inf, np.inf, (40,), np.float64)
    action_space = spaces.Box(-np.inf, np.inf, (2,), np.float64)
    state = [("values", np.float64, (40,))]

    def reset(self, random):
        self.values[...] = 0.0

    def step(self, action, random):
        x, y = action
        unit, positive, values = x / (1.0 + abs(x)), abs(x) + 0.001, self.values
        values[0], values[1], values[2] = math.acos(unit), math.acosh(1.0 + positive), math.asin(unit)
        values[3], values[4], values[5] = math.asinh(x), math.atan(x), math.atanh(unit)
        values[6], values[7], values[8] = math.cos(x), math.cosh(x), math.exp(x)
        values[9], values[10], values[11] = math.expm1(x), math.log(positive), math.log10(positive)
        values[12], values[13], values[14] = math.log1p(positive), math.log2(positive), math.sin(x)
        values[15], values[16], values[17] = math.sinh(x), math.sqrt(positive), math.tan(x)
        values[18], values[19], values[20] = math.tanh(x), math.atan2(x, y), math.ceil(x)
        values[21], values[22], values[23] = math.copysign(x, y), math.degrees(x), math.fabs(x)
        values[24], values[25], values[26] = math.floor(x), divmod(x, y)[1], math.radians(x)
        values[27], values[28], values[29] = math.trunc(x), math.pow(positive, y), positive**y
        values[30], values[31], values[32] = x**2, x**3, positive**0.5
        values[33], values[34], values[35] = x // y, x % y, round(x)
        values[36], values[37] = int(x) // 3, int(x) % 7
        values[38], values[39] = x * y + x, x / y - x * 0.1
        return 3 ** int(positive), math.isnan(x) or math.isinf(x) or not math.isfinite(x), False

    def observe(self, observation):
        observation[...] = self.values
