// Einsum: products of tensors summed over axes that letters name, two operands at a time.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string>

#include "runtime/onnx/op_table.h"

namespace headroom::onnx {
namespace {

// A tensor and a letter for each of its axes. Axes of an ellipsis are digits, the last one '0'.
struct Lettered {
  Item item;
  std::string letters;
};

bool has(const std::string& letters, char letter) {
  return letters.find(letter) != std::string::npos;
}

Axes places_of(const std::string& letters, const std::string& in) {
  Axes axes;
  for (char letter : letters) axes.push_back(static_cast<int>(in.find(letter)));
  return axes;
}

Lettered arranged(const NodeImport& n, const Lettered& x, const std::string& letters) {
  return {x.letters == letters ? x.item : n.im.transpose(x.item, places_of(letters, x.letters)), letters};
}

// Summed over all letters but those in `kept`.
Lettered summed(const NodeImport& n, const Lettered& x, const std::string& kept) {
  std::vector<int> axes;
  std::string left;
  for (size_t i = 0; i < x.letters.size(); ++i) {
    if (has(kept, x.letters[i])) {
      left += x.letters[i];
    } else {
      axes.push_back(static_cast<int>(i));
    }
  }
  return axes.empty() ? x : Lettered{n.im.reduce(ReduceKind::kSum, x.item, axes, false), left};
}

// The product of two, summed over letters that are not in `kept`: one product of matrices.
Lettered product(const NodeImport& n, Lettered a, Lettered b, const std::string& kept) {
  a = summed(n, a, kept + b.letters);
  b = summed(n, b, kept + a.letters);
  std::string both, inner, left, right;
  int64_t rows = 1, columns = 1, depth = 1;
  std::vector<int64_t> batch, extents;
  for (size_t i = 0; i < a.letters.size(); ++i) {
    const char letter = a.letters[i];
    const int64_t extent = a.item.shape[static_cast<int>(i)];
    if (!has(b.letters, letter)) {
      left += letter;
      rows *= extent;
      continue;
    }
    const int64_t other = b.item.shape[static_cast<int>(b.letters.find(letter))];
    if (other != extent) n.fail(fmt::format("its letter {} has extents {} and {}", letter, extent, other));
    (has(kept, letter) ? both : inner) += letter;
    if (has(kept, letter)) {
      batch.push_back(extent);
    } else {
      depth *= extent;
    }
  }
  for (size_t i = 0; i < b.letters.size(); ++i) {
    if (has(a.letters, b.letters[i])) continue;
    right += b.letters[i];
    columns *= b.item.shape[static_cast<int>(i)];
  }
  const Lettered first = arranged(n, a, both + left + inner), second = arranged(n, b, both + inner + right);
  const auto whole = [&](int64_t height, int64_t width) {
    int64_t count = 1;
    for (int64_t extent : batch) count *= extent;
    return both.empty() ? Shape{height, width} : Shape{count, height, width};
  };
  const Item y = n.im.matmul(n.im.reshape(first.item, whole(rows, depth)),
                             n.im.reshape(second.item, whole(depth, columns)));
  extents = batch;
  for (size_t i = both.size(); i < both.size() + left.size(); ++i)
    extents.push_back(first.item.shape[static_cast<int>(i)]);
  for (size_t i = both.size() + inner.size(); i < second.letters.size(); ++i)
    extents.push_back(second.item.shape[static_cast<int>(i)]);
  if (extents.size() > static_cast<size_t>(Shape::kMaxRank)) n.fail("has results of too many axes");
  return {n.im.reshape(y, Shape(std::span<const int64_t>(extents))), both + left + right};
}

// Returns the letters of one term for a tensor of that rank; without a rank, those of the result, in which
// the dots stand for `ellipsis` axes.
std::string letters_of(const NodeImport& n, const std::string& term, int rank, int ellipsis) {
  std::string letters;
  for (size_t i = 0; i < term.size(); ++i) {
    if (term[i] != '.') {
      if (has(letters, term[i])) n.fail("takes a diagonal, which is not supported");
      letters += term[i];
      continue;
    }
    if (term.compare(i, 3, "...") != 0) n.fail("its equation is wrong");
    const int count = rank < 0 ? ellipsis : rank - static_cast<int>(term.size() - 3);
    if (count < 0 || count > Shape::kMaxRank) n.fail("its equation does not fit its operands");
    for (int axis = count - 1; axis >= 0; --axis) letters += static_cast<char>('0' + axis);
    i += 2;
  }
  if (rank >= 0 && static_cast<int>(letters.size()) != rank) n.fail("its equation does not fit its operands");
  return letters;
}

}  // namespace

void import_einsum(NodeImport& n) {
  std::string equation = n.text("equation", "");
  std::erase(equation, ' ');
  const size_t arrow = equation.find("->");
  std::vector<Lettered> operands;
  std::map<char, int> counts;
  int ellipsis = 0;
  for (size_t at = 0, end = std::min(arrow, equation.size()); at <= end;) {
    const size_t stop = std::min(equation.find(',', at), end);
    if (operands.size() >= n.operands()) n.fail("its equation has more terms than operands");
    const Item& item = n.in(operands.size());
    if (item.dtype() != DType::kF32) n.fail("takes integers");
    const std::string letters = letters_of(n, equation.substr(at, stop - at), item.rank(), 0);
    for (char letter : letters) {
      ++counts[letter];
      if (letter <= '9') ellipsis = std::max(ellipsis, letter - '0' + 1);
    }
    operands.push_back({item, letters});
    at = stop + 1;
  }
  if (operands.size() != n.operands()) n.fail("its equation has fewer terms than operands");
  std::string result;
  if (arrow != std::string::npos) {
    result = letters_of(n, equation.substr(arrow + 2), -1, ellipsis);
  } else {  // the ellipsis, then letters that stand once, in the order of the alphabet
    for (int axis = ellipsis - 1; axis >= 0; --axis) result += static_cast<char>('0' + axis);
    for (const auto& [letter, count] : counts) {
      if (letter > '9' && count == 1) result += letter;
    }
  }
  for (char letter : result) {
    if (!counts.contains(letter)) n.fail("its result has a letter that no operand has");
  }
  Lettered y = operands[0];
  for (size_t i = 1; i < operands.size(); ++i) {
    std::string kept = result;
    for (size_t later = i + 1; later < operands.size(); ++later) kept += operands[later].letters;
    y = product(n, y, operands[i], kept);
  }
  n.out(arranged(n, summed(n, y, result), result).item);
}

}  // namespace headroom::onnx
