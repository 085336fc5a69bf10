// SPDX-License-Identifier: Apache-2.0
#include "vfio/kernel_command_line.h"

#include <algorithm>

#include "common/check_reading.h"

namespace ferry {
namespace {

bool is_space(char c) {
  return c == ' ' || c == '\t' || c == '\n';
}

// The next parameter, with its quotes. Blanks inside quotes do not separate, wherever the quotes stand.
std::string_view next_word(std::string_view& text) {
  while (!text.empty() && is_space(text.front())) text.remove_prefix(1);
  bool quoted = false;
  std::size_t end = 0;
  for (; end < text.size() && (quoted || !is_space(text[end])); ++end) {
    if (text[end] == '"') quoted = !quoted;
  }
  const auto word = text.substr(0, end);
  text.remove_prefix(end);
  return word;
}

std::string_view unquoted(std::string_view text) {
  if (text.starts_with('"')) {
    text.remove_prefix(1);
    if (text.ends_with('"')) text.remove_suffix(1);
  }
  return text;
}

}  // namespace

bool KernelParameter::lists(std::string_view word) const {
  if (!value) return false;
  std::string_view rest = *value;
  while (!rest.empty()) {
    if (cut(rest, ',') == word) return true;
  }
  return false;
}

KernelCommandLine KernelCommandLine::parse(std::string_view text) {
  KernelCommandLine line;
  for (;;) {
    const auto word = next_word(text);
    if (word.empty() || word == "--") return line;
    const auto whole = unquoted(word);  // "name=a b" may be quoted as a whole
    const auto equals = whole.find('=');
    KernelParameter parameter{
        .name = std::string(whole.substr(0, equals)), .value = {}, .text = std::string(word)};
    std::ranges::replace(parameter.name, '-', '_');
    if (equals != std::string_view::npos) parameter.value = unquoted(whole.substr(equals + 1));
    line.parameters_.push_back(std::move(parameter));
  }
}

Result<KernelCommandLine> KernelCommandLine::read(const HostFs& host) {
  auto text = read_text(host, "proc/cmdline");
  if (!text) return fail(std::move(text).error());
  return parse(*text);
}

const KernelParameter* KernelCommandLine::last(std::string_view name) const {
  const KernelParameter* found = nullptr;
  for (const KernelParameter& parameter : parameters_) {
    if (parameter.name == name) found = &parameter;
  }
  return found;
}

const KernelParameter* KernelCommandLine::listing(std::string_view name, std::string_view word) const {
  const auto found = std::ranges::find_if(parameters_, [&](const KernelParameter& parameter) {
    return parameter.name == name && parameter.lists(word);
  });
  return found == parameters_.end() ? nullptr : &*found;
}

}  // namespace ferry
