"""The networks that Node2Seq is compared with: how wide the layers of LGCN are."""

from __future__ import annotations

from node2seq.nn.models.baselines import LGCN


def test_widths_grow_by_what_each_layer_adds() -> None:
    model = LGCN(20, 32, 7)
    assert [layer.conv1.in_channels for layer in model.layers] == [32, 40]  # pyright: ignore[reportAttributeAccessIssue]
    assert [layer.conv1.out_channels for layer in model.layers] == [20, 24]  # pyright: ignore[reportAttributeAccessIssue]
    assert model.classifier.in_channels == 48
    assert LGCN(20, 32, 7, num_lgcl=1).classifier.in_channels == 40
