// Whether a real card may be filled to the brim. Knows no scenario.
#pragma once

namespace headroom::repro {

// Throws InvalidArgument when others hold memory of the visible GPU of that number, or when nobody can tell,
// and when there is no such GPU: a scenario takes the rest of the card, and their next allocation would fail.
void require_unused_card(int ordinal);

}  // namespace headroom::repro
