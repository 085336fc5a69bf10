// SPDX-License-Identifier: Apache-2.0
#include "tests/kata-manager/containerd_cases.h"

#include <algorithm>
#include <fstream>
#include <functional>
#include <iterator>
#include <map>
#include <stdexcept>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "common/text/text.h"

namespace ferry::test {
namespace {

std::string content_of(const std::filesystem::path& file) {
  std::ifstream in(file, std::ios::binary);
  if (!in) throw std::runtime_error("there is no " + file.string());
  return {std::istreambuf_iterator<char>(in), {}};
}

void replace_all(std::string& text, std::string_view what, std::string_view by) {
  for (auto at = text.find(what); at != std::string::npos; at = text.find(what, at + by.size()))
    text.replace(at, what.size(), by);
}

/// The text of a file of corpus/. A line "< PART" in it stands for the lines of parts/PART.toml.
std::string with_parts(const std::filesystem::path& file) {
  const std::string text = content_of(file);
  std::string out;
  for (std::size_t at = 0; at < text.size();) {
    const auto end = std::min(text.find('\n', at), text.size() - 1) + 1;
    const std::string line = text.substr(at, end - at);
    const std::string part = line.starts_with("< ") ? line.substr(2, line.size() - 3) : "";
    out += part.empty() ? line : content_of(containerd_fixtures() / "parts" / (part + ".toml"));
    at = end;
  }
  return out;
}

std::string joined(const std::vector<std::string>& lines) {
  return fmt::format("{}\n", fmt::join(lines, "\n"));
}

/// The text of real/NAME.toml or real/NAME.patch, a difference without context to the case that it names
/// first.
std::string written_by_containerd(const std::string& name) {
  const auto file = containerd_fixtures() / "real" / (name + ".toml");
  if (std::filesystem::exists(file)) return content_of(file);
  const auto patch = words_between(content_of(std::filesystem::path(file).replace_extension("patch")), '\n');
  const auto from = words_between(written_by_containerd(patch.at(0).substr(4)), '\n');
  std::vector<std::string> to;
  std::size_t at = 0;
  for (const std::string& line : patch) {
    if (line.starts_with("--- ") || line.starts_with("+++ ")) continue;
    if (line.starts_with("@@ -")) {
      // "@@ -84,0 +85,18 @@": behind line 84
      const auto begin = number_at_start(line.substr(4)).value();
      const bool adds_only = line.substr(4, line.find(" +") - 4).ends_with(",0");
      while (at < begin - (adds_only ? 0 : 1)) to.push_back(from.at(at++));
    } else if (line.starts_with('+')) {
      to.push_back(line.substr(1));
    } else if (line.substr(1) != from.at(at++)) {
      throw std::runtime_error(name + ".patch does not fit: " + line);
    }
  }
  to.insert(to.end(), from.begin() + static_cast<std::ptrdiff_t>(at), from.end());
  return joined(to);
}

/// The CRI plugins' tables, as NVIDIA's toolkit copies them into a drop-in, and its runtime.
std::string nvidias_drop_in(const std::string& text) {
  const bool is_1 = text.find("version = 2\n") != std::string::npos;
  std::string out = is_1 ? "version = 2\n\n" : "version = 3\n\n";
  bool inside = false;
  for (const std::string& line : words_between(text, '\n')) {
    const std::string_view words = trimmed(line);
    if (words.starts_with('['))
      inside = line.find("grpc.v1.cri") != std::string::npos || line.find("cri.v1") != std::string::npos;
    if (inside) out += std::string(words) + "\n";
  }
  const std::string table = fmt::format("\n[plugins.\"{}\".containerd.runtimes.nvidia",
                                        is_1 ? "io.containerd.grpc.v1.cri" : "io.containerd.cri.v1.runtime");
  return out + table + "]\n  runtime_type = \"io.containerd.runc.v2\"\n" + table +
         ".options]\n  BinaryName = \"/usr/bin/nvidia-container-runtime\"\n";
}

std::string commented_on(const std::string& text) {
  std::vector<std::string> out;
  std::size_t number = 0;
  for (std::string line : words_between(text, '\n')) {
    const bool goes_on = line.ends_with('[') || line.ends_with(',') || line.ends_with("\"\"\"");
    if (!line.empty() && number % 5 == 0 && !goes_on) {
      std::string comment(trimmed(line));
      std::ranges::replace(comment, '"', '\'');
      line += "  # " + comment;
    }
    out.push_back(line);
    if (trimmed(line).starts_with('[') && number % 3 == 0)
      out.insert(out.end(), {"", "#[plugins.x]", "\t# = = ]["});
    ++number;
  }
  return joined(out);
}

struct Edit {
  const char* what;
  std::function<void(std::string& text)> make;
};

/// Programs and people make these changes to the file that `containerd config default` writes.
const std::map<std::string, Edit>& edits() {
  static const std::map<std::string, Edit> all = {
      {"comments", {"then commented on in odd places", [](std::string& text) { text = commented_on(text); }}},
      {"crlf", {"then saved with CRLF", [](std::string& text) { replace_all(text, "\n", "\r\n"); }}},
      {"no-newline", {"then saved without a newline at its end", [](std::string& text) { text.pop_back(); }}},
      {"nvidia-drop-in",
       {"then NVIDIA's toolkit: a copy of the CRI sections in a drop-in",
        [](std::string& text) {
          const auto begin = text.find("imports = ");
          text.replace(begin, text.find('\n', begin) - begin, "imports = [\"conf.d/*.toml\"]");
        }}},
      {"systemd-cgroup", {"then SystemdCgroup = true, as kubeadm's guide has it", [](std::string& text) {
                            replace_all(text, "SystemdCgroup = false", "SystemdCgroup = true");
                          }}}};
  return all;
}

void write(const std::filesystem::path& file, const std::string& text) {
  std::filesystem::create_directories(file.parent_path());
  std::ofstream(file, std::ios::binary) << text;
}

}  // namespace

std::filesystem::path containerd_fixtures() {
  return FERRY_SOURCE_DIR "/tests/fixtures/containerd";
}

std::vector<std::string> containerd_cases() {
  std::vector<std::string> out;
  for (const auto& entry : std::filesystem::directory_iterator(containerd_fixtures() / "corpus"))
    out.push_back("corpus/" + entry.path().filename().string());
  for (const auto& entry : std::filesystem::directory_iterator(containerd_fixtures() / "real")) {
    const std::string name = "real/" + entry.path().stem().string();
    out.push_back(name);
    if (!name.ends_with("-default")) continue;
    for (const auto& [edit, how] : edits()) out.push_back(name.substr(0, name.rfind('-') + 1) + edit);
  }
  std::ranges::sort(out);
  return out;
}

void write_containerd_case(const std::string& name, const std::filesystem::path& folder) {
  if (name.starts_with("corpus/")) {
    const auto from = containerd_fixtures() / name;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(from))
      if (entry.is_regular_file())
        write(folder / entry.path().lexically_relative(from), with_parts(entry.path()));
    return;
  }
  const std::string release = name.substr(5, name.find('-') - 5);
  const auto edit = edits().find(name.substr(name.find('-') + 1));
  std::string text = written_by_containerd(edit == edits().end() ? name.substr(5) : release + "-default");
  if (edit != edits().end()) {
    text.erase(0, text.find('\n') + 1);
    if (edit->first == "nvidia-drop-in") write(folder / "conf.d/99-nvidia.toml", nvidias_drop_in(text));
    edit->second.make(text);
    text.insert(0, fmt::format("# From: containerd {}: config default; {}{}\n", release, edit->second.what,
                               edit->first == "crlf" ? "\r" : ""));
  }
  write(folder / "config.toml", text);
}

}  // namespace ferry::test
