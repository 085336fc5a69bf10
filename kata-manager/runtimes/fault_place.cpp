// SPDX-License-Identifier: Apache-2.0
#include "kata-manager/runtimes/fault_place.h"

#include <cstdint>
#include <functional>
#include <optional>
#include <regex>
#include <set>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "common/text/text.h"
#include "kata-manager/toml/toml.h"

namespace ferry::kata {
namespace {

/// Takes a place in a copy, "(8, 3): " or " at row 2 column 13", out of containerd's words. Its row; absent:
/// none.
std::optional<std::uint32_t> take_row(std::string& words) {
  static const std::regex place(R"(\((\d+), \d+\): | at row (\d+) column \d+)");
  std::smatch found;
  if (!std::regex_search(words, found, place)) return std::nullopt;
  const auto row = whole_number(found[1].matched ? found.str(1) : found.str(2));
  words = found.prefix().str() + found.suffix().str();
  return row;
}

/// Finds the value that containerd's words are about in the host's files.
class FaultPlace {
 public:
  FaultPlace(const HostFs& host, std::span<const ContainerdFile> files) : host_(host), files_(files) {}

  /// "/etc/containerd/config.toml:13"; empty: not found, or not certain. `copies`: the files as containerd
  /// read them, by which it counts `row`.
  std::string find(const std::string& words, std::optional<std::uint32_t> row,
                   const std::vector<std::string>& copies) const {
    // Keys in backquotes, and Go's field of a key.
    static const std::regex names(R"(`([^`]+)`|struct field [\w.]*\.(\w+))");
    for (std::sregex_iterator it(words.begin(), words.end(), names), end; it != end; ++it) {
      const std::string key = as_go_field((*it)[1].matched ? it->str(1) : it->str(2));
      auto place = first([&](std::size_t, const TomlPath& path, const TomlValue&) {
        return as_go_field(path.back()) == key;
      });
      if (!place.empty()) return place;
    }
    if (row) return by_row(words, *row, copies);
    return by_value(words);
  }

 private:
  using Counts = std::function<bool(std::size_t file, const TomlPath& path, const TomlValue& value)>;

  /// "max_conf_num" and "MaxConfNum" are one name.
  static std::string as_go_field(std::string_view key) {
    std::string out = lower(key);
    std::erase(out, '_');
    return out;
  }

  static void add_lines(std::size_t file, std::string_view text, const TomlTable& table, TomlPath& path,
                        const Counts& counts, std::set<std::uint32_t>& into) {
    for (const auto& [name, value] : table) {
      path.push_back(name);
      if (value.table() != nullptr) add_lines(file, text, *value.table(), path, counts, into);
      const auto line = counts(file, path, value) ? line_of(text, path) : std::nullopt;
      if (line) into.insert(*line);
      path.pop_back();
    }
  }

  /// The places of all values that count.
  std::vector<std::string> all(const Counts& counts) const {
    std::vector<std::string> out;
    for (std::size_t file = 0; file < files_.size(); ++file) {
      const auto content = host_.read_file(files_[file].path.relative_path());
      if (!content) continue;
      std::set<std::uint32_t> lines;
      TomlPath path;
      add_lines(file, *content, files_[file].root, path, counts, lines);
      for (const auto line : lines) out.push_back(fmt::format("{}:{}", files_[file].path.string(), line));
    }
    return out;
  }
  std::string first(const Counts& counts) const {
    const auto places = all(counts);
    return places.empty() ? "" : places.front();
  }

  std::string by_row(const std::string& words, std::uint32_t row,
                     const std::vector<std::string>& copies) const {
    const auto places = all([&](std::size_t file, const TomlPath& path, const TomlValue& value) {
      if (value.table() != nullptr || line_of(copies.at(file), path) != row) return false;
      // "Can't convert 0(int64) to float64"
      std::string shown = toml_text({}, {{"x", value}}).substr(4);
      std::erase_if(shown, [](char c) { return c == '"' || c == '\n'; });
      return words.find("convert ") == std::string::npos ||
             words.find("convert " + shown + "(") != std::string::npos;
    });
    return places.size() == 1 ? places.front() : "";
  }

  /// True: the words have the value in quotes, or whole if no other word looks like it.
  static bool names_value(const std::string& words, const std::string& value) {
    if (value.empty()) return false;
    if (words.find('"' + value + '"') != std::string::npos) return true;
    if (value.find_first_of("./:") == std::string::npos) return false;
    const auto is_part = [&](std::size_t at) {
      return at < words.size() && (is_alphanumeric(words[at]) || words[at] == '/' || words[at] == '.');
    };
    const auto at = words.find(value);
    return at != std::string::npos && (at == 0 || !is_part(at - 1)) && !is_part(at + value.size());
  }

  std::string by_value(const std::string& words) const {
    std::string longest;
    const auto collect = [&](std::size_t, const TomlPath&, const TomlValue& value) {
      if (const auto* text = value.string();
          text != nullptr && text->size() > longest.size() && names_value(words, *text))
        longest = *text;
      return false;
    };
    all(collect);
    if (longest.empty()) return {};
    return first([&](std::size_t, const TomlPath&, const TomlValue& value) {
      return value.string() != nullptr && *value.string() == longest;
    });
  }

  const HostFs& host_;
  std::span<const ContainerdFile> files_;
};

}  // namespace

std::string place_of_fault(const HostFs& host, std::span<const ContainerdFile> files,
                           const std::vector<std::string>& copies, std::string& words) {
  const auto row = take_row(words);
  return FaultPlace(host, files).find(words, row, copies);
}

}  // namespace ferry::kata
