"""What the benchmark of kernels reads from NVIDIA's disassembler."""

import pytest

from benchmarks.cuda import sass

TEXT = """
.text.other:
.L_x_9:
        /*0000*/                   DADD R0, R0, R2 ;
        /*0010*/                   BRA `(.L_x_9);
.text.run:
        /*0000*/                   LDC R1, c[0x0][0x28] ;
.L_x_2:
        /*0010*/                   LDG.E R2, desc[UR6][R2.64] ;
.L_x_1:
        /*0020*/                   FFMA R3, R0.reuse, R0, R9 ;
        /*0030*/                   DFMA R4, R4, R4, R6 ;
        /*0040*/              @!P1 BRA P2, `(.L_x_1) ;
        /*0050*/                   STG.E desc[UR6][R2.64], R3 ;
        /*0060*/               @P0 BRA `(.L_x_2) ;
        /*0070*/                   EXIT ;
.L_x_3:
        /*0080*/                   BRA `(.L_x_3);
        /*0090*/                   NOP;
"""


@pytest.fixture
def disassembled(monkeypatch):
    monkeypatch.setattr(sass, "tool", lambda *_: TEXT)


def test_the_innermost_loop_of_a_kernel(disassembled):
    assert sass.innermost(b"", "run") == sass.Loop(instructions=3, doubles=1)


def test_a_tool_that_is_not_here():
    with pytest.raises(sass.NoTool, match="nvdisasm-that-is-not-there cannot be run"):
        sass.tool("nvdisasm-that-is-not-there")
    with pytest.raises(sass.NoTool, match="false fails"):
        sass.tool("false")
