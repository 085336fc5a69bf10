// SPDX-License-Identifier: Apache-2.0
#include "agent/kata_wish.h"

#include <algorithm>

#include <fmt/format.h>

namespace ferry {
namespace {

bool fits(const KataClass& kata, const Labels& labels) {
  if (!kata.node_selector) return true;
  return std::ranges::all_of(*kata.node_selector, [&](const auto& wanted) {
    const auto found = labels.find(wanted.first);
    return found != labels.end() && found->second == wanted.second;
  });
}

/// True if a file without classes asks for none with an empty list.
bool says_none(const ConfigText& text) {
  const auto root = parse_config(text);
  if (!root) return false;
  const ConfigMember* const classes = root->find("runtimeClasses");
  return classes != nullptr && classes->value.kind == ConfigNode::Kind::list;
}

}  // namespace

KataWish kata_wish(const KataSource& source, const Labels& labels) {
  constexpr const char* kStay = "Kata's runtimes stay as they are";
  KataWish out;
  out.asked_by = source.name;
  if (!source.is_known) return out;
  if (!source.trouble.empty()) {
    out.trouble = fmt::format("{}: {}", source.trouble, kStay);
    return out;
  }
  if (source.texts.empty()) {
    out.trouble =
        fmt::format("{} is not there, or has no class file: {}; one with `runtimeClasses: []` takes all away",
                    source.name, kStay);
    return out;
  }
  if (source.texts.size() > 1) {
    out.trouble = fmt::format("{} has several keys, and none of them is config.yaml: {}", source.name, kStay);
    return out;
  }
  auto file = read_classes(source.texts.front());
  if (!file) {
    const Error& error = file.error();
    out.trouble = error.hint.empty() ? error.message : fmt::format("{}; {}", error.message, error.hint);
    return out;
  }
  if (file->classes.empty() && !says_none(source.texts.front())) {
    out.trouble = fmt::format("{}: no runtime classes in it: {}; `runtimeClasses: []` takes all away",
                              source.texts.front().file, kStay);
    return out;
  }
  out.counts = true;
  out.config = source.texts.front();
  out.file = std::move(*file);
  for (const KataClass& kata : out.file.classes)
    if (fits(kata, labels)) out.classes.push_back(kata.name);
  return out;
}

}  // namespace ferry
