// SPDX-License-Identifier: Apache-2.0
#include "policy/gpu_models.h"

#include <charconv>
#include <string>

#include <fmt/format.h>

// The program holds the table as it is in the repository: nothing is generated, parsed at start or relocated.
// NOLINTNEXTLINE(hicpp-no-assembler)
asm(R"(
  .pushsection .rodata.ferry_gpu_models, "a", @progbits
ferry_gpu_models_begin:
  .incbin ")" FERRY_GPU_MODELS R"("
ferry_gpu_models_end:
  .popsection
)");
extern "C" {
// NOLINTBEGIN(modernize-avoid-c-arrays,cppcoreguidelines-avoid-c-arrays)
extern const char ferry_gpu_models_begin[];
extern const char ferry_gpu_models_end[];
// NOLINTEND(modernize-avoid-c-arrays,cppcoreguidelines-avoid-c-arrays)
}

namespace ferry::policy {
namespace {

std::string_view next_part(std::string_view& text, char separator) {
  const auto end = text.find(separator);
  const auto part = text.substr(0, end);
  text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  return part;
}

std::optional<std::uint32_t> number(std::string_view text) {
  std::uint32_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

bool lists(std::string_view boards, std::string_view board) {
  while (!boards.empty()) {
    if (next_part(boards, ',') == board) return true;
  }
  return false;
}

}  // namespace

std::string_view gpu_models_text() {
  return {ferry_gpu_models_begin, static_cast<std::size_t>(ferry_gpu_models_end - ferry_gpu_models_begin)};
}

GpuModel gpu_model(std::string_view ids, std::string_view subsystem_ids) {
  if (ids.find_first_of("\t\n") != std::string_view::npos) return {};  // would match more columns
  const std::string head = fmt::format("{}\t", ids);
  std::string_view text = gpu_models_text();
  const auto begin = text.find("\n" + head);
  if (begin == std::string_view::npos) return {};
  text.remove_prefix(begin + 1);
  GpuModel out;
  while (text.starts_with(head)) {  // lines of one device stand together
    std::string_view line = next_part(text, '\n').substr(head.size());
    const std::string_view boards = next_part(line, '\t');
    const bool of_this_board = lists(boards, subsystem_ids);
    if (!boards.empty() && !of_this_board) continue;
    out.product = next_part(line, '\t');
    out.memory_mib = number(next_part(line, '\t'));
    out.family = line;
    if (of_this_board) break;
  }
  return out;
}

}  // namespace ferry::policy
