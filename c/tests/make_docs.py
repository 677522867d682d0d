"""Makes one C program of all examples of a page, in their order, and a file of the output that the page gives.

    python3 make_docs.py docs/c.md docs.c expected.txt
"""

import re
import sys

page, program, expected = sys.argv[1:]
with open(page, encoding="utf8") as file:
    blocks = re.findall(r"^```(\w+)\n(.*?)^```", file.read(), flags=re.S | re.M)
shown = [text for kind, text in blocks if kind == "c"]
printed = [text for kind, text in blocks if kind == "text"]
assert len(shown) >= 4 and shown[0].count("\n") <= 5, "the page must begin with a C example of at most five lines"
with open(program, "w", encoding="utf8") as file:
    file.write("#include <inttypes.h>\n#include <reshard.h>\n#include <stdio.h>\n#include <stdlib.h>\n\n")
    file.write("int main(void) {\n" + "".join(shown) + "    return reshard_handles() == 0 ? 0 : 1;\n}\n")
with open(expected, "w", encoding="utf8") as file:
    file.write("".join(printed))
