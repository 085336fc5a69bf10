// SPDX-License-Identifier: Apache-2.0
#include "kata-manager/controller/restart_check.h"

#include <algorithm>
#include <cstdint>
#include <fcntl.h>
#include <functional>
#include <iterator>
#include <regex>
#include <set>
#include <sstream>
#include <string_view>
#include <sys/types.h>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "common/file_status.h"
#include "common/text/text.h"
#include "kata-manager/artifacts/artifact_store.h"
#include "kata-manager/runtimes/runtime_record.h"
#include "kata-manager/runtimes/trial_configuration.h"
#include "kata-manager/toml/toml.h"

namespace ferry::kata {
namespace {

// No plugin has this ID. A containerd that reports it missing has loaded all others.
constexpr const char* kNoSuchPlugin = "io.containerd.ferry.v1.trial";
constexpr mode_t kOwnerOnly = 0600;  // values may hold registry credentials

/// The text, or the word, after a key of a log line: msg="Failed to run CRI service"
std::string logged(const std::string& line, const std::string& key) {
  const auto begin = line.find(" " + key + "=");
  if (begin == std::string::npos) return {};
  std::string out;
  auto at = begin + key.size() + 2;
  const bool quoted = line.substr(at).starts_with('"');
  for (at += quoted ? 1 : 0; at < line.size() && line[at] != (quoted ? '"' : ' '); ++at) {
    if (quoted && line[at] == '\\' && at + 1 < line.size()) ++at;
    out += line[at];
  }
  return out;
}

/// Why containerd ended, by its last line. Empty: it only lacks the plugin that does not exist. Absent:
/// unknown output.
std::optional<std::string> last_words(const std::string& said) {
  constexpr std::string_view kOwnName = "containerd: ";
  constexpr std::string_view kRequired = "load required plugin ";
  constexpr std::string_view kNotIncluded = "required plugin [";
  std::istringstream lines(said);
  std::optional<std::string> out;
  for (std::string line; std::getline(lines, line);) {
    // A service that cannot go on ends the program.
    if (line.find(" level=fatal ") != std::string::npos && !out)
      out = fmt::format("{}: {}", logged(line, "msg"), logged(line, "error"));
    if (!line.starts_with(kOwnName)) continue;
    line.erase(0, kOwnName.size());
    if (line.starts_with(kNotIncluded)) {
      auto ids = words_between(line.substr(kNotIncluded.size(), line.find(']') - kNotIncluded.size()), ' ');
      std::erase(ids, kNoSuchPlugin);
      const bool is_cri = std::ranges::any_of(ids, [](const std::string& id) {
        return id == kCriOfVersion2 || id == kCriRuntime || id == kCriImages;
      });
      line = is_cri ? "its CRI plugin is not included, or is disabled"
             : ids.empty()
                 ? ""
                 : fmt::format("required plugin [{}] not included, or disabled", fmt::join(ids, " "));
    }
    if (line.starts_with(kRequired)) line.erase(0, kRequired.size());
    out = line;
  }
  return out;
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

class Trial {
 public:
  Trial(HostFs& host, HostWriter& writer, std::filesystem::path program, std::filesystem::path folder,
        std::span<const ContainerdFile> files, std::chrono::milliseconds serves)
      : host_(host),
        writer_(writer),
        program_(std::move(program)),
        folder_(std::move(folder)),
        files_(files),
        serves_(serves) {}

  Result<std::optional<TrialFault>> run() {
    if (auto r = remove_all(host_, folder_); !r) return fail(std::move(r).error());
    auto words = run_on_copies();
    auto removed = remove_all(host_, folder_);
    if (!words) return fail(std::move(words).error());
    if (!removed) return fail(std::move(removed).error());
    if (words->empty()) return std::optional<TrialFault>();
    // The reason names the files, not their copies.
    for (std::size_t i = 0; i < files_.size(); ++i) {
      const std::string copy = "/" / folder_ / fmt::format("{}.toml", i);
      for (auto at = words->find(copy); at != std::string::npos; at = words->find(copy))
        words->replace(at, copy.size(), files_[i].path.native());
    }
    // The words name a row of a copy, "(8, 3): " or " at row 2 column 13".
    static const std::regex in_copy(R"(\((\d+), \d+\): | at row (\d+) column \d+)");
    std::optional<std::uint32_t> row;
    if (std::smatch found; std::regex_search(*words, found, in_copy)) {
      row = whole_number(found[1].matched ? found.str(1) : found.str(2));
      *words = found.prefix().str() + found.suffix().str();
    }
    auto place = FaultPlace(host_, files_).find(*words, row, copies_);
    return std::optional<TrialFault>({.reason = std::move(*words), .place = std::move(place)});
  }

 private:
  /// Why it would serve no CRI; empty: it would.
  Result<std::string> run_on_copies() {
    // 0.toml is the main file, and imports the others.
    TomlArray imports;
    for (std::size_t i = 1; i < files_.size(); ++i)
      imports.push_back({("/" / folder_ / fmt::format("{}.toml", i)).string()});
    for (std::size_t i = 0; i < files_.size(); ++i) {
      TomlTable root = files_[i].root;
      root.erase("imports");
      if (i == 0 && !imports.empty()) root["imports"] = {imports};
      copies_.push_back(toml_text({}, root));
      if (auto r = write(fmt::format("{}.toml", i), copies_.back()); !r) return fail(std::move(r).error());
    }

    const HostCommand dump = command("0.toml", {"config", "dump"});
    const auto said = writer_.output(dump, kTrialDeadline);
    if (!said) {
      // A configuration that cannot be read is a reason, too.
      if (said.error().code != make_error_code(Errc::failed)) return fail(said.error());
      auto words = transcript_of(dump, kTrialDeadline);
      if (words && words->empty()) return fail(said.error());
      return words;
    }
    auto read = parse_toml(*said, program_.string() + " config dump");
    if (!read) return fail(std::move(read).error());
    TomlTable apart = kept_apart(host_, std::move(*read), "/" / folder_);
    if (auto r = write("serves.toml", toml_text({}, apart)); !r) return fail(std::move(r).error());
    TomlArray required = *apart["required_plugins"].array();
    required.push_back({std::string(kNoSuchPlugin)});
    apart["required_plugins"] = {std::move(required)};
    if (auto r = write("loads.toml", toml_text({}, apart)); !r) return fail(std::move(r).error());

    const auto begin = std::chrono::steady_clock::now();
    auto loaded = transcript_of(command("loads.toml"), kTrialDeadline);
    if (!loaded || !loaded->empty()) return loaded;
    const auto took =
        std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::steady_clock::now() - begin);
    auto served = transcript_of(command("serves.toml"), serves_ + 2 * took);
    // It served until it was killed.
    if (!served && served.error().code == std::errc::timed_out) return std::string();
    return served;
  }

  Result<> write(const std::string& name, const std::string& content) {
    return host_.write_file(folder_ / name, content, kOwnerOnly);
  }

  Result<std::string> transcript_of(const HostCommand& command, std::chrono::milliseconds deadline) {
    const auto said = writer_.transcript(command, deadline);
    if (!said) return fail(said.error());
    if (auto words = last_words(*said)) return std::move(*words);
    return fail(Errc::malformed_host, fmt::format("{}, started apart, says \"{}\"", program_.string(),
                                                  said->substr(0, said->find('\n'))));
  }

  HostCommand command(const std::string& configuration, const std::vector<std::string>& words = {}) const {
    HostCommand out{.words = {program_.string(), "--config", ("/" / folder_ / configuration).string()},
                    .killed_when_late = true};
    out.words.insert(out.words.end(), words.begin(), words.end());
    return out;
  }

  HostFs& host_;
  HostWriter& writer_;
  const std::filesystem::path program_;
  const std::filesystem::path folder_;
  const std::span<const ContainerdFile> files_;
  const std::chrono::milliseconds serves_;
  std::vector<std::string> copies_;  // the texts of the files' copies
};

}  // namespace

Result<std::optional<TrialFault>> why_no_cri(HostFs& host, HostWriter& writer,
                                             const std::filesystem::path& program,
                                             std::span<const ContainerdFile> files,
                                             const std::filesystem::path& folder,
                                             std::chrono::milliseconds serves) {
  return Trial(host, writer, program, folder, files, serves).run();
}

namespace {

bool is_containerd(const KataChange& change) {
  return change.runtime.place.kind == RuntimeKind::containerd && !change.plan.after.files.empty();
}

/// The time of a file's last change; absent: no file.
std::optional<timespec> changed_at(const HostFs& host, const std::filesystem::path& path) {
  const auto fd = host.open(path.relative_path(), O_PATH);
  const auto status = fd ? file_status(fd->get()) : std::nullopt;
  if (!status) return std::nullopt;
  return status->st_ctim;
}

Result<> check_age(const ChangeContext& context, const KataChange& change,
                   const std::vector<std::filesystem::path>& files, const std::string& why_not_asked) {
  if (context.accept_edited_files) return {};
  // The daemon made its socket at its start, by the same clock. Files that Ferry wrote for a later start do
  // not count.
  const auto started = changed_at(*context.host, change.runtime.place.socket);
  if (!started) return {};
  const auto own = read_runtime_record(*context.host);
  if (!own) return fail(own.error());
  for (const std::filesystem::path& file : files) {
    if (std::ranges::find(*own, file, &FileChange::path) != own->end()) continue;
    const auto changed = changed_at(*context.host, file);
    if (!changed ||
        std::pair(changed->tv_sec, changed->tv_nsec) <= std::pair(started->tv_sec, started->tv_nsec))
      continue;
    return fail(
        Errc::refused,
        fmt::format("{} has changed since containerd was started, and containerd could not be asked if "
                    "CRI loads with it ({})",
                    file.string(), why_not_asked),
        "restart containerd yourself and see that its CRI serves, then run this again; or say "
        "--accept-edited-files");
  }
  return {};
}

std::vector<std::filesystem::path> files_of(const KataChange& change) {
  std::vector<std::filesystem::path> out;
  std::ranges::transform(change.plan.files_now, std::back_inserter(out), &ContainerdFile::path);
  return out;
}

/// k3s and rke2 render the file from these templates at each start, so a trial misses an edit of them.
Result<> check_templates(const ChangeContext& context, const KataChange& change) {
  const RuntimePlace& place = change.runtime.place;
  if (!place.rendered) return {};
  const auto folder = place.configuration.parent_path();
  return check_age(context, change, {folder / "config.toml.tmpl", folder / "config-v3.toml.tmpl"},
                   place.name + " makes containerd's file from it at its next start");
}

/// /var/run is a link to /run.
std::filesystem::path below_run(const std::filesystem::path& socket) {
  const std::string text = socket.lexically_normal().string();
  return text.starts_with("/var/run/") ? text.substr(std::string_view("/var").size()) : text;
}

/// A daemon that runs without the socket of its files has another one, which a restart takes from the
/// kubelet.
Result<> check_socket(const ChangeContext& context, const KataChange& change) {
  const RuntimePlace& place = change.runtime.place;
  if (context.accept_edited_files || !place.next_socket) return {};
  const bool is_there = context.host->exists(place.socket.relative_path());
  if (is_there && below_run(*place.next_socket) == below_run(place.socket)) return {};
  const auto unit = unit_of(*context.host, place);
  if (!unit || !is_active(*context.host, *unit)) return {};
  return fail(
      Errc::refused,
      fmt::format("{} names the socket {}, and {} runs without it: a restart would take its present "
                  "socket from the kubelet",
                  place.configuration.string(), place.next_socket->string(), *unit),
      "restart containerd yourself and see that the kubelet uses the new socket, then run this again; "
      "or say --accept-edited-files");
}

std::string no_program(const KataChange& change) {
  const std::string& why = change.runtime.no_program;
  return why.empty() ? "its program is not known" : why;
}

/// The place of a fault: file and line if known, else all files that containerd reads.
std::string place_of(const KataChange& change, const TrialFault& fault,
                     const std::vector<ContainerdFile>& files) {
  if (!fault.place.empty()) return fault.place;
  std::vector<std::string> names;
  for (const ContainerdFile& file : files)
    if (!file.path.empty()) names.push_back(file.path.string());
  return names.empty() ? change.runtime.place.configuration.string()
                       : fmt::format("{}", fmt::join(names, ", "));
}

}  // namespace

Result<std::optional<std::string>> check_restart(const ChangeContext& context, HostWriter& writer,
                                                 const KataChange& change, bool restarts) {
  using Untried = std::optional<std::string>;
  if (!is_containerd(change)) return Untried();
  if (restarts) {
    if (auto r = check_socket(context, change); !r) return fail(std::move(r).error());
    if (auto r = check_templates(context, change); !r) return fail(std::move(r).error());
  }
  const auto files = files_of(change);
  const auto untried = [&](const std::string& why) -> Result<Untried> {
    if (restarts)
      if (auto r = check_age(context, change, files, why); !r) return fail(std::move(r).error());
    return Untried(why);
  };
  if (!change.runtime.program) return untried(no_program(change));
  if (!restarts && !context.host->exists("proc/1")) return untried("this tree is no running host's");
  const auto trial = [&](std::span<const ContainerdFile> of) {
    return why_no_cri(*context.host, writer, *change.runtime.program, of);
  };
  const auto started = trial(change.plan.after.files);
  if (!started) return untried(started.error().message);
  const std::optional<TrialFault>& fault = *started;
  if (!fault) return Untried();
  // If the trial fails with the release's defaults, too, its result proves nothing.
  const auto without = trial(std::vector<ContainerdFile>(1));
  const auto says = [&](const std::string& words) { return untried("started apart, it says: " + words); };
  if (!without) return says(without.error().message);
  if (const std::optional<TrialFault>& always = *without) return says(always->reason);
  const auto now = trial(change.plan.files_now);
  if (now && !*now) {
    return fail(Errc::refused,
                fmt::format("{}: containerd {} would serve no CRI with Ferry's runtimes: {}",
                            place_of(change, *fault, change.plan.after.files), change.runtime.release.text(),
                            fault->reason),
                "please report this with the configuration files of the host; nothing was changed");
  }
  return fail(
      Errc::refused,
      fmt::format("{}: containerd {} would serve no CRI after {}: {}",
                  place_of(change, *fault, change.plan.files_now), change.runtime.release.text(),
                  restarts ? "a restart" : "its next start", fault->reason),
      fmt::format("correct that, then run this again; nothing was changed{}",
                  restarts ? ", and the running containerd still has its earlier configuration" : ""));
}

Result<> foresee_restart(const ChangeContext& context, const KataChange& change, bool restarts) {
  if (!restarts || !is_containerd(change)) return {};
  if (auto r = check_socket(context, change); !r) return r;
  if (auto r = check_templates(context, change); !r) return r;
  return change.runtime.program ? Result<>()
                                : check_age(context, change, files_of(change), no_program(change));
}

std::optional<std::string> containerds_own_words(const ChangeContext& context, HostWriter& writer,
                                                 const KataChange& change) {
  if (!is_containerd(change) || !change.runtime.program) return std::nullopt;
  const auto why = why_no_cri(*context.host, writer, *change.runtime.program, change.plan.after.files);
  if (!why || !*why) return std::nullopt;
  return (*why)->reason;
}

}  // namespace ferry::kata
