"""A snapshot tells whether objects hold what they held."""

from dataclasses import dataclass, field

import numpy as np
import pytest

from autobatch.data.walk import Snapshot


@dataclass
class Node:
    x: object = 1.0
    left: "Node | None" = None
    more: list["Node"] = field(default_factory=list)


class Other(Node):
    pass


def tree():
    return Node(0.5, Node(2.0), [Node(3.0), Node(4.0, Node())])


def rename(node):
    node.y = node.__dict__.pop("x")


@pytest.mark.parametrize(
    "change",
    [
        lambda t: setattr(t.left, "x", 7.0),
        lambda t: setattr(t.more[1].left, "x", None),
        lambda t: t.more.append(Node()),
        lambda t: t.more.reverse(),
        lambda t: t.more.pop(),
        lambda t: setattr(t, "left", Node(2.0)),
        lambda t: setattr(t, "extra", 1),
        rename,
        lambda t: delattr(t.left, "x"),
        lambda t: setattr(t.left, "x", 2),
        lambda t: setattr(t.left, "__class__", Other),
        lambda t: setattr(t.left, "__dict__", {**vars(t.left), "x": 3.0}),
        lambda t: t.left.more.append(t.more.pop(0)),
        lambda t: t.more[1].more.append(t.more.pop(0)),
        lambda t: t.more[0].more.insert(0, t.more.pop()),
    ],
)
def test_a_change_shows(change):
    root = tree()
    held = Snapshot.of(root)
    assert held.holds()
    change(root)
    assert not held.holds()


def test_circles_end():
    root = tree()
    root.left.left = root
    assert Snapshot.of(root).holds()


@pytest.mark.parametrize("held", [np.ones(3), {"a": 1.0}, (1.0,), "text"])
def test_what_can_change_in_place_has_none(held):
    assert Snapshot.of(Node(1.0, Node(held))) is None
