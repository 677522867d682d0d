"""Overloads that become several statements, or one whose arguments follow from the result."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from reshard.torch import arithmetic, images, indexing, layers, losses, shapes

if TYPE_CHECKING:
    from reshard.torch.call import Call

# Writes the statements of a call; returns the names of its results, as `lower` does.
Form = Callable[["Call"], Any]

FORMS: dict[str, Form] = {**shapes.FORMS, **arithmetic.FORMS, **indexing.FORMS, **images.FORMS, **layers.FORMS, **losses.FORMS}
