// SPDX-License-Identifier: Apache-2.0
#include "kata-manager/runtimes/config_files.h"

#include <cerrno>
#include <fnmatch.h>
#include <set>
#include <utility>

namespace ferry::kata {

void ConfigFiles::suppose(const std::filesystem::path& path, std::optional<std::string> content) {
  supposed_.insert_or_assign(path.lexically_normal(), std::move(content));
}

Result<std::string> ConfigFiles::read(const std::filesystem::path& path) const {
  const auto supposed = supposed_.find(path.lexically_normal());
  if (supposed == supposed_.end()) return host_->read_file(path.relative_path());
  if (const auto& content = supposed->second) return *content;
  return fail(error_from_errno(ENOENT, "read " + path.string()));
}

Result<std::optional<std::string>> ConfigFiles::read_if_there(const std::filesystem::path& path) const {
  auto text = read(path);
  if (text) return std::optional(std::move(*text));
  if (text.error().code == std::errc::no_such_file_or_directory) return std::optional<std::string>();
  return fail(std::move(text).error());
}

Result<std::vector<std::string>> ConfigFiles::names_in(const std::filesystem::path& directory) const {
  std::set<std::string> names;
  auto listed = host_->list(directory.relative_path());
  if (listed) {
    names.insert(listed->begin(), listed->end());
  } else if (listed.error().code != std::errc::no_such_file_or_directory &&
             listed.error().code != std::errc::not_a_directory) {
    return fail(std::move(listed).error());
  }
  for (const auto& [path, content] : supposed_) {
    if (path.parent_path() != directory) continue;
    if (content) {
      names.insert(path.filename());
    } else {
      names.erase(path.filename());
    }
  }
  return std::vector<std::string>(names.begin(), names.end());
}

Result<std::vector<std::filesystem::path>> ConfigFiles::glob(const std::filesystem::path& pattern) const {
  std::vector<std::filesystem::path> found = {"/"};
  bool matched = false;  // an earlier part has a wildcard
  for (const auto& part : pattern.lexically_normal().relative_path()) {
    const bool wild = part.string().find_first_of("*?[") != std::string::npos;
    matched |= wild;
    std::vector<std::filesystem::path> next;
    for (const auto& directory : found) {
      if (!matched) {
        next.push_back(directory / part);
        continue;
      }
      auto names = names_in(directory);
      if (!names) return fail(std::move(names).error());
      for (const std::string& name : *names) {
        if (wild ? ::fnmatch(part.c_str(), name.c_str(), 0) == 0 : name == part)
          next.push_back(directory / name);
      }
    }
    found = std::move(next);
  }
  return found;
}

Result<std::optional<std::string>> content_of(const HostFs& host, const std::filesystem::path& path) {
  return ConfigFiles(host).read_if_there(path);
}

Result<> check_is_no_link(const HostFs& host, const std::filesystem::path& path) {
  const auto target = host.link_target(path.relative_path());
  if (!target) return {};
  return fail(Errc::refused,
              path.string() + " is a link to " + *target + ", and whoever made it writes that file",
              "if it is the container runtime's main file, name its target in the class file, `runtime: "
              "{config: ...}`; else put a copy of the target in place of the link");
}

Result<> make(HostFs& host, const FileChange& change) {
  const auto now = content_of(host, change.path);
  if (!now) return fail(now.error());
  if (*now == change.after) return {};
  if (auto r = check_is_no_link(host, change.path); !r) return r;
  if (*now != change.before) {
    return fail(Errc::refused, change.path.string() + " was changed since the plan was made",
                "try again: what to write is planned anew");
  }
  if (change.after) return host.write_file(change.path.relative_path(), *change.after);
  return host.remove_file(change.path.relative_path());
}

FileChange undone(const FileChange& change) {
  return {.path = change.path, .before = change.after, .after = change.before};
}

namespace {

constexpr std::string_view kBegin =
    "# ferry kata: from here to the end mark written by ferry, and taken away by it";
constexpr std::string_view kNewFile = " (with the file)";
constexpr std::string_view kUnended = " (with the line end before)";
constexpr std::string_view kEnd = "# ferry kata: end";

struct Block {
  std::size_t begin = 0;  ///< start of the first mark's line
  std::size_t body = 0;   ///< start of the next line
  std::size_t last = 0;   ///< start of the last mark's line
  std::size_t end = 0;    ///< after the last mark's line
  bool new_file = false;
  bool unended = false;
};

std::size_t behind_line(std::string_view text, std::size_t at) {
  const auto end = text.find('\n', at);
  return end == std::string_view::npos ? text.size() : end + 1;
}

Result<std::optional<Block>> find_block(std::string_view text) {
  Block found;
  bool any = false;
  bool open = false;
  for (std::size_t at = 0; at < text.size(); at = behind_line(text, at)) {
    std::string_view line = text.substr(at, text.find('\n', at) - at);
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.starts_with(kBegin)) {
      if (any) return fail(Errc::invalid_config, "it has two blocks of ferry's", "leave one of them");
      found = Block{.begin = at,
                    .body = behind_line(text, at),
                    .new_file = line.ends_with(kNewFile),
                    .unended = line.ends_with(kUnended)};
      any = true;
      open = true;
    } else if (line == kEnd) {
      if (!open) return fail(Errc::invalid_config, "it has the end of a block of ferry's without its begin");
      found.last = at;
      found.end = behind_line(text, at);
      open = false;
    }
  }
  if (open)
    return fail(Errc::invalid_config, "a block of ferry's does not end",
                "'" + std::string(kEnd) + "' ends it");
  return any ? std::optional(found) : std::nullopt;
}

std::string_view line_end_of(std::string_view text) {
  const auto last = text.find_last_of('\n');
  return last != std::string_view::npos && last > 0 && text[last - 1] == '\r' ? "\r\n" : "\n";
}

std::string with_line_ends(std::string_view lines, std::string_view end) {
  std::string out;
  for (const char c : lines) {
    if (c == '\n') {
      out += end;
    } else {
      out += c;
    }
  }
  return out;
}

std::string framed(std::string_view mark, std::string_view body) {
  std::string out(kBegin);
  out += mark;
  out += '\n';
  out += body;
  out += kEnd;
  out += '\n';
  return out;
}

}  // namespace

Result<std::string> with_block(const std::optional<std::string>& text, std::string_view body) {
  if (!text) return framed(kNewFile, body);
  const auto block = find_block(*text);
  if (!block) return fail(block.error());
  const std::string_view end = line_end_of(*text);
  if (const auto& there = *block)
    return text->substr(0, there->body) + with_line_ends(body, end) + text->substr(there->last);
  const bool unended = !text->empty() && !text->ends_with('\n');
  std::string out = *text;
  if (unended) out += end;
  return out + with_line_ends(framed(unended ? kUnended : std::string_view(), body), end);
}

Result<std::optional<std::string>> without_block(const std::string& text) {
  const auto block = find_block(text);
  if (!block) return fail(block.error());
  if (!*block) return std::optional<std::string>(text);
  const Block there = block->value_or(Block{});
  std::string before = text.substr(0, there.begin);
  const std::string behind = text.substr(there.end);
  if (there.new_file && before.empty() && behind.empty()) return std::optional<std::string>();
  if (there.unended && behind.empty()) {
    if (before.ends_with('\n')) before.pop_back();
    if (before.ends_with('\r') && line_end_of(text) == "\r\n") before.pop_back();
  }
  return std::optional<std::string>(before + behind);
}

Result<std::optional<std::string>> block_of(std::string_view text) {
  const auto block = find_block(text);
  if (!block) return fail(block.error());
  if (!*block) return std::optional<std::string>();
  std::string out(text.substr((*block)->body, (*block)->last - (*block)->body));
  std::erase(out, '\r');
  return std::optional<std::string>(std::move(out));
}

}  // namespace ferry::kata
