"""Damaged Parquet files: an error, whatever they do to the reader."""

from __future__ import annotations

import base64
import zlib
from pathlib import Path

import polars as pl
import pytest

from node2seq.data import parquet, read_graph
from node2seq.errors import Node2SeqError

# Reading it aborts polars 2.1: a damaged length makes it ask for 2^61 bytes.
ABORTS = (
    "c-oazKX21O6u)y^*F+r($~)PThX_$CRjVd3lq6LJz5Y?C2#{o;3d-"
    "WdaT6(RP*a*@tq@Zu#KcfR#Rp(PVr1wC;1e)0GF0r9c+YV{7?9d0-@Et!z2BYfqAaIDg#@e=KnKQH;!E-"
    "}9{b1`N5v&pBUUHo0fQLWix@cz8feyimf)Vj-BDh&#F&DL&Xved1~cX|(`HRWX?ZXsbaBGPXKq(*eIgM{7NEEY5{0m&&H_@`"
    "j8M|QjT+dOjC~z;U>6TDWatYh5@Sl;;1D(Em}VN>4|<+*amMXqW%YlB5j|om;5LbZ;P#0PaIRZ$=U>bNgZD?#H?~KZc_cc9J"
    "k@q<jdn1>k$BJTbJc#WPUM<56&%sUg@<a2&@dirEUIf0Zr;Z=2o08~LKOv)juklLp?t2w3lc#w3y;);PUjFbyox!6u3?T9Eb"
    ">KB<^Iq-95wU^-L%YA`$Vy>bbI2r1~G9l1-"
    "F^~DPmps?8TdDFvMF89x(gIly&9P6Q|Q4#CHwbiVqQ?+q(FL*N^ax8Cfnr+ga(>n~go!c&8+ZvUQ2HMJ#)SdcPFvf$6c7UAY"
    "nLCAm;Uf3HXOZ7FxdxF@)+2MS3PC*?+kO6N&kmtj0oIjBAMualbZH!FM3yJYQA{lT~h^`#b@VUk>+`Fh*bEgysg`4wcFU8-"
    "03n^YP1!~R>lI4A9;;T)ra$pBA@TtSw*Q<BVhTI{slgKj+Wa&Xw}?9a!K8VB80XFu*NrI%9iMD10p?Zq>GF6Gp`yT0!^8Q;%"
    "3UizMs$-1eW>*SVw-|;hU!^=7I<|@8B!-w_pV<_TZ<qu%>%HR"
)


def test_a_file_that_aborts_the_reader_is_an_error(tmp_path: Path):
    edges, nodes = tmp_path / "edges.csv", tmp_path / "nodes.parquet"
    edges.write_text("source,target\na,b\n")
    nodes.write_bytes(zlib.decompress(base64.b85decode("".join(ABORTS))))
    with pytest.raises(Node2SeqError, match="its Parquet data is truncated or damaged"):
        read_graph(edges, nodes, label="label")


def test_the_probe_is_started_again_after_it_was_aborted(tmp_path: Path):
    damaged, whole = zlib.decompress(base64.b85decode("".join(ABORTS))), tmp_path / "whole.parquet"
    pl.DataFrame({"id": ["a"], "f": [1.0]}).write_parquet(whole)
    assert not parquet.is_damaged(whole, ["id", "f"])
    first = parquet._probes[0].pid
    assert parquet.is_damaged(damaged, ["id", "f", "label"])
    assert not parquet._probes
    assert not parquet.is_damaged(whole, ["id", "f"])
    assert parquet._probes[0].pid != first
    assert not parquet.is_damaged(whole.read_bytes())
