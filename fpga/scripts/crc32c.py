#!/usr/bin/env python3
"""Writes rtl/crc32c.sv: CRC-32C of a word (8 or 16 bytes) and of one byte as XOR equations, and the residues of blocks.

    scripts/crc32c.py > rtl/crc32c.sv

A loop over bits would be the same function, but synthesis makes chains of it: 61 MHz instead of 120.
"""

POLYNOMIAL = 0x82F63B78


def byte_step(state, byte):
    state ^= byte
    for _ in range(8):
        state = (state >> 1) ^ (POLYNOMIAL if state & 1 else 0)
    return state


def steps(word, count):
    """The state behind `count` bytes, from state 0. A state before them is XORed into the first four."""
    state = 0
    for i in range(count):
        state = byte_step(state, word >> 8 * i & 0xFF)
    return state


def equations(bits, function):
    columns = [function(1 << i) for i in range(bits)]
    for out in range(32):
        terms = [f"x[{i}]" for i in range(bits) if columns[i] >> out & 1]
        text = ", ".join(terms)
        yield f"    assign y[{out}] = ^{{{text}}};"


def module(name, doc, bits, function):
    print(f"\n// {doc}\nmodule {name} (\n    input  wire [{bits - 1}:0] x,\n    output wire [31:0] y\n);")
    for line in equations(bits, function):
        while len(line) > 118:
            cut = line.rfind(" ", 0, 118)
            print(line[:cut])
            line = " " * 8 + line[cut + 1 :]
        print(line)
    print("endmodule")


def one_byte(value):
    return byte_step(value >> 8, value & 0xFF)


def residues():
    state = 0xFFFFFFFF
    message = b"123456789"
    for byte in message:
        state = byte_step(state, byte)
    assert state ^ 0xFFFFFFFF == 0xE3069283
    for byte in (state ^ 0xFFFFFFFF).to_bytes(4, "little"):
        state = byte_step(state, byte)
    for zeros in range(16):
        yield zeros, state
        state = byte_step(state, 0)


print("// Made by scripts/crc32c.py; do not edit.\n`default_nettype none")
module("crc32c_word", "The state behind eight bytes. The state before them is XORed into x[31:0].", 64,
       lambda word: steps(word, 8))
module("crc32c_two_words", "The same of sixteen bytes.", 128, lambda word: steps(word, 16))
print("""
// The state behind a word of the path. The state before it is XORed into x[31:0].
module crc32c #(
    parameter BYTES = 8
) (
    input  wire [8*BYTES-1:0] x,
    output wire [31:0]        y
);
    if (BYTES == 8) begin : g_word
        crc32c_word word (.x, .y);
    end else begin : g_two_words
        crc32c_two_words words (.x, .y);
    end
endmodule""")
module("crc32c_byte", "The state behind one byte. x = {state before, byte}.", 40, one_byte)
print("\n// The state behind a whole block with its checksum, and then some zero bytes: the same for every sound block.")
print("module crc32c_residue (\n    input  wire [3:0] zeros,\n    output reg  [31:0] y\n);\n    always_comb case (zeros)")
for zeros, state in residues():
    print(f"        4'd{zeros}: y = 32'h{state:08x};")
print("    endcase\nendmodule\n\n`default_nettype wire")
