"""Shows the parameters of ``make`` on all its variants, to editors, type checkers and ``help()``.

``P`` stands for these parameters: the settings, ``env_config`` and the env's own configuration.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal, ParamSpec, Protocol, TypeVar, overload

from stepmill.settings import Device

if TYPE_CHECKING:
    import jax
    import torch

    from stepmill.views.dm import DmPool
    from stepmill.views.gym import GymPool
    from stepmill.views.gymnasium import GymnasiumPool

__all__ = ["EnvType", "like_make_dm", "like_make_gym", "like_make_gymnasium", "pool_of_env_type", "same_parameters"]

EnvType = Literal["gymnasium", "gym", "dm"]

P = ParamSpec("P")
T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class Make(Protocol[P]):
    """``make``: ``env_type`` decides which pool it returns, and ``output`` of which arrays.

    Nothing can be said about one of the parameters in ``P`` without leaving out the others: if ``output`` is one of
    those below, all others but ``device`` are not checked.
    """

    @overload
    def __call__(
        self,
        task_id: Any,
        env_type: Literal["gymnasium"] = "gymnasium",
        *,
        output: Literal["torch"],
        device: Device | torch.device = "cpu",
        **arguments: Any,
    ) -> GymnasiumPool[torch.Tensor]: ...
    @overload
    def __call__(
        self,
        task_id: Any,
        env_type: Literal["gym"],
        *,
        output: Literal["torch"],
        device: Device | torch.device = "cpu",
        **arguments: Any,
    ) -> GymPool[torch.Tensor]: ...
    @overload
    def __call__(
        self,
        task_id: Any,
        env_type: Literal["dm"],
        *,
        output: Literal["torch"],
        device: Device | torch.device = "cpu",
        **arguments: Any,
    ) -> DmPool[torch.Tensor]: ...
    @overload
    def __call__(
        self,
        task_id: Any,
        env_type: Literal["gymnasium"] = "gymnasium",
        *,
        output: Literal["jax"],
        device: Device = "cpu",
        **arguments: Any,
    ) -> GymnasiumPool[jax.Array]: ...
    @overload
    def __call__(
        self,
        task_id: Any,
        env_type: Literal["gym"],
        *,
        output: Literal["jax"],
        device: Device = "cpu",
        **arguments: Any,
    ) -> GymPool[jax.Array]: ...
    @overload
    def __call__(
        self, task_id: Any, env_type: Literal["dm"], *, output: Literal["jax"], device: Device = "cpu", **arguments: Any
    ) -> DmPool[jax.Array]: ...
    @overload
    def __call__(
        self, task_id: Any, env_type: Literal["gymnasium"] = "gymnasium", *args: P.args, **arguments: P.kwargs
    ) -> GymnasiumPool: ...
    @overload
    def __call__(self, task_id: Any, env_type: Literal["gym"], *args: P.args, **arguments: P.kwargs) -> GymPool: ...
    @overload
    def __call__(self, task_id: Any, env_type: Literal["dm"], *args: P.args, **arguments: P.kwargs) -> DmPool: ...


class LikeMake(Protocol[P, T_co]):
    """A function with all parameters of ``make``."""

    def __call__(self, task_id: Any, env_type: EnvType = "gymnasium", *args: P.args, **arguments: P.kwargs) -> T_co: ...


class MakeGymnasium(Protocol[P]):
    """``make_gymnasium``: all parameters of ``make`` but ``env_type``."""

    @overload
    def __call__(
        self, task_id: Any, *, output: Literal["torch"], device: Device | torch.device = "cpu", **arguments: Any
    ) -> GymnasiumPool[torch.Tensor]: ...
    @overload
    def __call__(
        self, task_id: Any, *, output: Literal["jax"], device: Device = "cpu", **arguments: Any
    ) -> GymnasiumPool[jax.Array]: ...
    @overload
    def __call__(self, task_id: Any, *args: P.args, **arguments: P.kwargs) -> GymnasiumPool: ...


class MakeGym(Protocol[P]):
    """``make_gym``."""

    @overload
    def __call__(
        self, task_id: Any, *, output: Literal["torch"], device: Device | torch.device = "cpu", **arguments: Any
    ) -> GymPool[torch.Tensor]: ...
    @overload
    def __call__(
        self, task_id: Any, *, output: Literal["jax"], device: Device = "cpu", **arguments: Any
    ) -> GymPool[jax.Array]: ...
    @overload
    def __call__(self, task_id: Any, *args: P.args, **arguments: P.kwargs) -> GymPool: ...


class MakeDm(Protocol[P]):
    """``make_dm``."""

    @overload
    def __call__(
        self, task_id: Any, *, output: Literal["torch"], device: Device | torch.device = "cpu", **arguments: Any
    ) -> DmPool[torch.Tensor]: ...
    @overload
    def __call__(
        self, task_id: Any, *, output: Literal["jax"], device: Device = "cpu", **arguments: Any
    ) -> DmPool[jax.Array]: ...
    @overload
    def __call__(self, task_id: Any, *args: P.args, **arguments: P.kwargs) -> DmPool: ...


def pool_of_env_type(make: LikeMake[P, Any]) -> Make[P]:
    """Tells type checkers which pool each ``env_type`` and ``output`` return."""
    return make  # type: ignore[return-value]  # its parameters are in P, where nobody sees `output`


def same_parameters(make: Make[P]) -> Callable[[Callable[..., T]], LikeMake[P, T]]:
    """Shows ``**arguments`` of a function of ``task_id`` and ``env_type`` as those of ``make``."""
    return lambda function: _show(function, make)


def like_make_gymnasium(make: Make[P]) -> Callable[[Callable[..., Any]], MakeGymnasium[P]]:
    """Shows ``**arguments`` of a function of ``task_id`` alone as those of ``make``."""
    return lambda function: _show(function, make)


def like_make_gym(make: Make[P]) -> Callable[[Callable[..., Any]], MakeGym[P]]:
    """The same for the gym view."""
    return lambda function: _show(function, make)


def like_make_dm(make: Make[P]) -> Callable[[Callable[..., Any]], MakeDm[P]]:
    """The same for the dm view."""
    return lambda function: _show(function, make)


def _show(function: Callable[..., Any], make: Any) -> Any:
    """The same function; ``inspect.signature`` shows the keywords of ``make`` instead of its ``**arguments``."""
    own, model = inspect.signature(function), inspect.signature(make)
    positional = [one for one in own.parameters.values() if one.kind is one.POSITIONAL_OR_KEYWORD]
    keywords = [one for one in model.parameters.values() if one.kind is not one.POSITIONAL_OR_KEYWORD]
    function.__signature__ = own.replace(parameters=[*positional, *keywords])  # type: ignore[attr-defined]
    return function
