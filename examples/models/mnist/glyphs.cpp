#include "examples/models/mnist/glyphs.h"

#include <array>
#include <cstddef>

namespace headroom {
namespace {

constexpr PenPoint k0a1[] = {{56, 2},  {30, 12}, {17, 45}, {24, 82}, {47, 98},
                             {72, 86}, {83, 52}, {74, 15}, {54, 2}};
constexpr PenPoint k0b1[] = {{64, 8},  {44, 0},  {24, 22}, {18, 60}, {34, 95},
                             {60, 97}, {79, 68}, {80, 32}, {66, 8},  {50, 4}};
constexpr PenPoint k0c1[] = {{48, 0},  {28, 20}, {24, 52}, {30, 84}, {50, 100},
                             {69, 82}, {74, 48}, {68, 18}, {48, 0}};
constexpr Stroke k0a[] = {k0a1};
constexpr Stroke k0b[] = {k0b1};
constexpr Stroke k0c[] = {k0c1};
constexpr Glyph k0[] = {k0a, k0b, k0c};

constexpr PenPoint k1a1[] = {{52, 0}, {51, 35}, {50, 70}, {49, 100}};
constexpr PenPoint k1b1[] = {{33, 22}, {44, 13}, {54, 1}};
constexpr PenPoint k1b2[] = {{54, 1}, {53, 50}, {51, 100}};
constexpr PenPoint k1c1[] = {{30, 24}, {43, 14}, {52, 0}};
constexpr PenPoint k1c2[] = {{52, 0}, {52, 50}, {52, 98}};
constexpr PenPoint k1c3[] = {{28, 99}, {52, 98}, {76, 98}};
constexpr PenPoint k1d1[] = {{58, 0}, {54, 30}, {47, 68}, {42, 100}};
constexpr Stroke k1a[] = {k1a1};
constexpr Stroke k1b[] = {k1b1, k1b2};
constexpr Stroke k1c[] = {k1c1, k1c2, k1c3};
constexpr Stroke k1d[] = {k1d1};
constexpr Glyph k1[] = {k1a, k1b, k1c, k1d};

constexpr PenPoint k2a1[] = {{20, 24}, {30, 6}, {54, 0}, {74, 12}, {74, 34}, {56, 60}, {34, 82}, {19, 97}};
constexpr PenPoint k2a2[] = {{19, 97}, {45, 95}, {82, 96}};
constexpr PenPoint k2b1[] = {{22, 20}, {40, 2},  {66, 6},  {74, 28}, {60, 56}, {36, 86},
                             {20, 94}, {16, 84}, {30, 78}, {52, 90}, {70, 98}, {86, 90}};
constexpr PenPoint k2c1[] = {{18, 14}, {42, 4}, {70, 8}, {72, 30}, {52, 56}, {22, 92}};
constexpr PenPoint k2c2[] = {{22, 92}, {52, 90}, {80, 94}};
constexpr Stroke k2a[] = {k2a1, k2a2};
constexpr Stroke k2b[] = {k2b1};
constexpr Stroke k2c[] = {k2c1, k2c2};
constexpr Glyph k2[] = {k2a, k2b, k2c};

constexpr PenPoint k3a1[] = {{22, 14}, {42, 0}, {68, 6}, {72, 26}, {58, 42}, {42, 47}};
constexpr PenPoint k3a2[] = {{42, 47}, {66, 52}, {78, 72}, {64, 94}, {38, 99}, {18, 86}};
constexpr PenPoint k3b1[] = {{22, 4}, {46, 4}, {74, 4}};
constexpr PenPoint k3b2[] = {{74, 4}, {60, 22}, {44, 40}};
constexpr PenPoint k3b3[] = {{44, 40}, {68, 46}, {78, 68}, {66, 92}, {40, 99}, {20, 88}};
constexpr PenPoint k3c1[] = {{26, 10}, {50, 0},  {70, 16}, {60, 38},  {44, 46},
                             {52, 47}, {72, 58}, {74, 84}, {50, 100}, {22, 92}};
constexpr Stroke k3a[] = {k3a1, k3a2};
constexpr Stroke k3b[] = {k3b1, k3b2, k3b3};
constexpr Stroke k3c[] = {k3c1};
constexpr Glyph k3[] = {k3a, k3b, k3c};

constexpr PenPoint k4a1[] = {{28, 2}, {24, 28}, {20, 54}};
constexpr PenPoint k4a2[] = {{20, 54}, {48, 55}, {80, 50}};
constexpr PenPoint k4a3[] = {{70, 2}, {66, 50}, {62, 100}};
constexpr PenPoint k4b1[] = {{64, 0}, {42, 32}, {16, 66}};
constexpr PenPoint k4b2[] = {{16, 66}, {50, 66}, {84, 64}};
constexpr PenPoint k4b3[] = {{64, 0}, {63, 50}, {62, 100}};
constexpr PenPoint k4c1[] = {{30, 0}, {22, 30}, {24, 52}, {44, 58}, {66, 46}};
constexpr PenPoint k4c2[] = {{74, 4}, {68, 46}, {64, 74}, {62, 100}};
constexpr Stroke k4a[] = {k4a1, k4a2, k4a3};
constexpr Stroke k4b[] = {k4b1, k4b2, k4b3};
constexpr Stroke k4c[] = {k4c1, k4c2};
constexpr Glyph k4[] = {k4a, k4b, k4c};

constexpr PenPoint k5a1[] = {{30, 3}, {28, 24}, {25, 44}};
constexpr PenPoint k5a2[] = {{25, 44}, {46, 36}, {68, 44}, {78, 66}, {66, 90}, {42, 99}, {20, 90}};
constexpr PenPoint k5a3[] = {{30, 3}, {54, 4}, {78, 1}};
constexpr PenPoint k5b1[] = {{80, 2}, {56, 3}, {34, 6}};
constexpr PenPoint k5b2[] = {{34, 6}, {26, 24}, {24, 42}};
constexpr PenPoint k5b3[] = {{24, 42}, {52, 42}, {72, 56}, {70, 82}, {46, 98}, {18, 94}};
constexpr PenPoint k5c1[] = {{74, 0},  {50, 4},  {34, 12},  {32, 34}, {50, 46},
                             {68, 62}, {66, 86}, {44, 100}, {24, 92}};
constexpr Stroke k5a[] = {k5a1, k5a2, k5a3};
constexpr Stroke k5b[] = {k5b1, k5b2, k5b3};
constexpr Stroke k5c[] = {k5c1};
constexpr Glyph k5[] = {k5a, k5b, k5c};

constexpr PenPoint k6a1[] = {{64, 0},  {42, 18}, {26, 48}, {24, 78}, {40, 98},
                             {64, 94}, {74, 74}, {62, 56}, {42, 56}, {28, 70}};
constexpr PenPoint k6b1[] = {{54, 0},  {34, 26}, {24, 60}, {30, 90}, {52, 100},
                             {72, 86}, {70, 64}, {52, 56}, {32, 68}, {26, 80}};
constexpr PenPoint k6c1[] = {{76, 6},  {52, 10}, {32, 34}, {22, 66}, {34, 94},
                             {60, 98}, {76, 80}, {66, 60}, {44, 60}, {28, 76}};
constexpr Stroke k6a[] = {k6a1};
constexpr Stroke k6b[] = {k6b1};
constexpr Stroke k6c[] = {k6c1};
constexpr Glyph k6[] = {k6a, k6b, k6c};

constexpr PenPoint k7a1[] = {{18, 8}, {46, 6}, {80, 3}};
constexpr PenPoint k7a2[] = {{80, 3}, {62, 36}, {50, 68}, {42, 100}};
constexpr PenPoint k7b1[] = {{18, 6}, {46, 8}, {78, 4}};
constexpr PenPoint k7b2[] = {{78, 4}, {62, 34}, {48, 68}, {40, 100}};
constexpr PenPoint k7b3[] = {{34, 52}, {54, 50}, {76, 47}};
constexpr PenPoint k7c1[] = {{20, 20}, {22, 4}, {48, 7}, {80, 2}};
constexpr PenPoint k7c2[] = {{80, 2}, {66, 26}, {50, 60}, {48, 100}};
constexpr Stroke k7a[] = {k7a1, k7a2};
constexpr Stroke k7b[] = {k7b1, k7b2, k7b3};
constexpr Stroke k7c[] = {k7c1, k7c2};
constexpr Glyph k7[] = {k7a, k7b, k7c};

constexpr PenPoint k8a1[] = {{72, 14},  {52, 0},  {30, 10}, {30, 30}, {52, 46}, {74, 66}, {72, 90},
                             {48, 100}, {26, 88}, {30, 64}, {52, 46}, {72, 30}, {70, 12}};
constexpr PenPoint k8b1[] = {{50, 0}, {30, 12}, {32, 36}, {50, 46}, {68, 36}, {70, 12}, {50, 0}};
constexpr PenPoint k8b2[] = {{50, 46}, {26, 62}, {26, 88}, {50, 100}, {74, 88}, {74, 62}, {50, 46}};
constexpr PenPoint k8c1[] = {{78, 8},   {54, 2},  {34, 14}, {40, 36}, {62, 56}, {68, 84},
                             {48, 100}, {30, 84}, {42, 56}, {64, 34}, {80, 10}};
constexpr Stroke k8a[] = {k8a1};
constexpr Stroke k8b[] = {k8b1, k8b2};
constexpr Stroke k8c[] = {k8c1};
constexpr Glyph k8[] = {k8a, k8b, k8c};

constexpr PenPoint k9a1[] = {{72, 20}, {54, 2}, {30, 10}, {22, 32}, {38, 50}, {60, 44}, {72, 22}};
constexpr PenPoint k9a2[] = {{72, 20}, {70, 50}, {66, 76}, {58, 100}};
constexpr PenPoint k9b1[] = {{74, 14}, {50, 0}, {26, 16}, {28, 42}, {52, 48}, {72, 28}, {75, 12}};
constexpr PenPoint k9b2[] = {{75, 12}, {74, 46}, {66, 82}, {46, 99}, {26, 92}};
constexpr PenPoint k9c1[] = {{70, 8}, {46, 4}, {28, 22}, {32, 44}, {54, 46}, {70, 26}};
constexpr PenPoint k9c2[] = {{70, 8}, {66, 50}, {50, 100}};
constexpr Stroke k9a[] = {k9a1, k9a2};
constexpr Stroke k9b[] = {k9b1, k9b2};
constexpr Stroke k9c[] = {k9c1, k9c2};
constexpr Glyph k9[] = {k9a, k9b, k9c};

// Named k<digit><style><stroke>.
constexpr std::array<std::span<const Glyph>, 10> kGlyphs = {k0, k1, k2, k3, k4, k5, k6, k7, k8, k9};

}  // namespace

std::span<const Glyph> glyphs_of(int digit) {
  return kGlyphs[static_cast<size_t>(digit)];
}

}  // namespace headroom
