// SPDX-License-Identifier: Apache-2.0
#include "kata-manager/runtimes/containerd_plan.h"

#include <algorithm>
#include <initializer_list>
#include <iterator>
#include <set>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "common/text/text.h"
#include "kata-manager/runtimes/containerd_place.h"

namespace ferry::kata {
namespace {

// The name sorts after 99-nvidia.toml, which copies the settings that it finds.
constexpr const char* kDropIn = "ferry-kata.toml";

/// Why a daemon would serve no pods; absent: it would.
std::optional<Error> problem_of(const ContainerdOutcome& outcome) {
  return outcome.no_start ? outcome.no_start : outcome.no_cri;
}

// The files that containerd reads, and drop-ins of Ferry that are not imported now but may be again.
std::vector<std::filesystem::path> files_with_ours(const RuntimePlace& place, const ContainerdOutcome& now) {
  std::vector<std::filesystem::path> out;
  std::ranges::transform(now.files, std::back_inserter(out), &ContainerdFile::path);
  for (const char* folder : {"conf.d", "config.toml.d", "config-v3.toml.d"}) {
    const auto path = place.configuration.parent_path() / folder / kDropIn;
    if (std::ranges::find(out, path) == out.end()) out.push_back(path);
  }
  return out;
}

/// The content of Ferry's block in a file; absent: no block.
Result<std::optional<TomlTable>> said_in_block(const ConfigFiles& files, const std::filesystem::path& path) {
  const auto text = files.read_if_there(path);
  if (!text) return fail(text.error());
  const auto block = block_of((*text).value_or(""));
  if (!block) return fail(Error(block.error()).during(path.string()));
  const auto& lines = *block;
  if (!lines) return std::optional<TomlTable>();
  return parse_toml(*lines, path.string());
}

// A daemon without --config treats a missing main file as an empty one.
ContainerdOutcome predict(const ContainerdRelease& release, const RuntimePlace& place,
                          const ConfigFiles& files) {
  const auto main = files.read_if_there(place.configuration);
  if (!main) return predict_containerd(release, files, place.configuration);
  std::string text = (*main).value_or("");
  for (const auto& [name, value] : place.placeholders) {
    for (auto at = text.find(name); at != std::string::npos; at = text.find(name, at + value.size()))
      text.replace(at, name.size(), value);
  }
  ConfigFiles as_read = files;
  as_read.suppose(place.configuration, std::move(text));
  return predict_containerd(release, as_read, place.configuration);
}

/// A key whose case differs from a known key. containerd 2 accepts it, but the prediction does not.
std::optional<std::string> spelt_otherwise(const TomlTable& table,
                                           std::initializer_list<std::string_view> known) {
  for (const auto& [key, value] : table) {
    for (const std::string_view name : known) {
      if (key != name && lower(key) == name) return key;
    }
  }
  return std::nullopt;
}

std::optional<std::string> spelt_otherwise(const ContainerdFile& file) {
  if (auto key = spelt_otherwise(file.root, {"version", "imports", "plugins", "disabled_plugins"}))
    return key;
  for (const char* id : {kCriOfVersion1, kCriOfVersion2, kCriRuntime}) {
    const TomlTable* const cri = find_table(file.root, {"plugins", id});
    if (cri == nullptr) continue;
    if (auto key = spelt_otherwise(*cri, {"containerd"})) return key;
    const TomlTable* const inner = find_table(*cri, {"containerd"});
    if (inner == nullptr) continue;
    if (auto key = spelt_otherwise(*inner, {"runtimes", "default_runtime_name"})) return key;
  }
  return std::nullopt;
}

// A program that parses and reprints containerd's file drops comments, and Ferry's marks with them.

/// A runtime table of Ferry outside of its blocks (with_block() in config_files.h).
struct UnmarkedRuntime {
  std::string name;
  TomlTable entry;
  std::vector<TomlPath> tables;  ///< its table, and its snapshotter's if there is one
};

/// The runtimes in a file whose `ConfigPath` lies below /etc/ferry/kata, by name. `root`: the file without
/// Ferry's block.
std::vector<UnmarkedRuntime> unmarked_runtimes(const TomlTable& root) {
  std::vector<UnmarkedRuntime> out;
  const TomlTable* plugins = find_table(root, {"plugins"});
  if (plugins == nullptr) return out;
  for (const auto& [id, section] : *plugins) {
    const TomlTable* runtimes = find_table(*plugins, {id, "containerd", "runtimes"});
    if (runtimes == nullptr) continue;
    for (const auto& [name, entry] : *runtimes) {
      if (!is_configuration_of_ferry(text_at(*runtimes, {name, "options", "ConfigPath"}))) continue;
      UnmarkedRuntime found{
          .name = name, .entry = *entry.table(), .tables = {{"plugins", id, "containerd", "runtimes", name}}};
      if (find(root, {"plugins", kCriImages, "runtime_platforms", name}) != nullptr)
        found.tables.push_back({"plugins", kCriImages, "runtime_platforms", name});
      out.push_back(std::move(found));
    }
  }
  return out;
}

class Planner {
 public:
  Planner(const ContainerdRelease& release, const RuntimePlace& place, const ConfigFiles& files,
          std::span<const RuntimeHandler> handlers)
      : release_(release),
        place_(place),
        files_(files),
        handlers_(handlers.begin(), handlers.end()),
        without_(files) {}

  Result<RuntimePlan> plan() {
    const auto main = files_.read_if_there(place_.configuration);
    if (!main) return fail(main.error());
    if (!*main && place_.rendered) {
      return fail(Errc::not_found, place_.configuration.string() + ": it has not been written yet",
                  "start the service that writes it");
    }
    now_ = predict(release_, place_, files_);
    if (release_.merges_sections()) {
      for (const ContainerdFile& file : now_.files) {
        if (const auto key = spelt_otherwise(file)) {
          return fail(
              Errc::refused,
              fmt::format("{}: containerd 2 reads {} whatever the case of its letters, and what comes of "
                          "it is not predicted",
                          file.path.string(), *key),
              "write it in small letters");
        }
      }
    }

    for (const auto& path : files_with_ours(place_, now_)) {
      const auto block = said_in_block(files_, path);
      if (!block) return fail(block.error());
      const auto& said = *block;
      if (!said) continue;
      auto rest = without_block(files_.read(path).value_or(""));
      if (!rest) return fail(std::move(rest).error().during(path.string()));
      without_.suppose(path, std::move(*rest));
      touched_.insert(path);
      merge_over(ours_, runtimes_in(*said));
    }
    for (const ContainerdFile& file : now_.files)
      if (touched_.contains(file.path)) own_.push_back(file.path);

    const bool removes_all = handlers_.empty();
    if (auto r = remove_unmarked(); !r) return fail(std::move(r).error());
    before_ = predict(release_, place_, without_);
    // The type's spelling stays as it is, so an upgrade from 1.6 causes no restart.
    for (RuntimeHandler& handler : handlers_)
      handler = configured_as_in(find_table(ours_, {handler.name}), handler);
    return removes_all ? plan_removal() : plan_installation();
  }

 private:
  /// Tables that lost their marks stay if they equal the plan, and need no block. Other unmarked tables go.
  Result<> remove_unmarked() {
    const TomlTable marked = ours_;
    for (const ContainerdFile& file : now_.files) {
      const auto text = without_.read_if_there(file.path);
      if (!text) return fail(text.error());
      if (!*text) continue;
      const auto root = parse_toml(**text, file.path.string());
      if (!root) return fail(root.error());
      std::vector<TomlPath> leaving;
      std::vector<std::string> names;
      for (const UnmarkedRuntime& runtime : unmarked_runtimes(*root)) {
        if (equals_plan(runtime.name)) {
          staying_.insert(runtime.name);
          continue;
        }
        leaving.insert(leaving.end(), runtime.tables.begin(), runtime.tables.end());
        names.push_back(runtime.name);
        ours_.try_emplace(runtime.name, TomlValue{runtime.entry});
      }
      if (auto r = remove_tables(file.path, **text, leaving); !r) return r;
      if (!names.empty())
        notes_.push_back(
            fmt::format("{}: {} had lost Ferry's marks: another program has written the file anew",
                        file.path.string(), fmt::join(names, ", ")));
    }
    if (!staying_.empty())
      notes_.push_back(
          fmt::format("{}: known, without Ferry's marks: another program has written the file anew",
                      fmt::join(staying_, ", ")));
    std::erase_if(handlers_, [&](const RuntimeHandler& handler) {
      return staying_.contains(handler.name) && !marked.contains(handler.name);
    });
    return {};
  }

  Result<> remove_tables(const std::filesystem::path& path, const std::string& text,
                         const std::vector<TomlPath>& tables) {
    if (tables.empty()) return {};
    if (place_.rendered && path == place_.configuration) {
      return fail(Errc::refused,
                  fmt::format("{}: [{}] is a runtime of Ferry's, and another program writes the file anew at "
                              "each start",
                              path.string(), dotted(tables.front())),
                  "remove the table from the template of that program, then run this again");
    }
    auto rest = without_tables(text, path.string(), tables);
    if (!rest) return fail(std::move(rest).error());
    without_.suppose(path, std::move(*rest));
    touched_.insert(path);
    return {};
  }

  bool equals_plan(const std::string& name) const {
    const auto handler = std::ranges::find(handlers_, name, &RuntimeHandler::name);
    const TomlTable* const there = find_table(now_.runtimes(), {name});
    if (handler == handlers_.end() || there == nullptr) return false;
    const TomlTable desired = entry_of(configured_as_in(there, *handler), release_);
    return !first_difference(desired, *there, name);
  }

  /// The present plugins without Ferry's runtimes. If another file has a runtime of the name, that counts.
  TomlTable less_ours(bool keep_runc) const {
    TomlTable plugins = now_.plugins;
    for (const auto& [name, entry] : ours_) {
      if (keep_runc && name == "runc") continue;
      TomlTable& runtimes = table_at(plugins, {now_.runtime_section, "containerd", "runtimes"});
      const auto copy = before_.runtimes().find(name);
      if (copy == before_.runtimes().end()) {
        runtimes.erase(name);
      } else {
        runtimes.insert_or_assign(name, copy->second);
      }
      if (release_.merges_sections()) table_at(plugins, {kCriImages, "runtime_platforms"}).erase(name);
    }
    return plugins;
  }

  Error would_not_run(const Error& problem) const {
    const std::string cure = problem.hint.empty() ? "correct that in the file" : problem.hint;
    return {.code = Errc::refused,
            .message = fmt::format("containerd {} would not run with the configuration that is there: {}",
                                   release_.text(), problem.message),
            .hint = cure + ", then run this again; nothing was changed"};
  }

  Result<RuntimePlan> plan_removal() {
    if (ours_.empty()) return finish(without_, before_);
    const auto problem_now = problem_of(now_);
    if (const auto problem = problem_of(before_)) {
      if (problem_now) return fail(would_not_run(*problem_now));
      return fail(Errc::refused, "without our runtimes containerd would not run: " + problem->message,
                  "something written since leans on them: give it a version, or a runtime runc, of its own");
    }
    if (!problem_now) {
      if (const auto fault = first_difference(less_ours(false), before_.plugins, "plugins")) {
        return fail(Errc::refused,
                    fmt::format("without our runtimes something else would change: {}", *fault),
                    "something written since leans on them: a key behind them needs a table of its own");
      }
    }
    return finish(without_, before_);
  }

  Result<> check_names() const {
    for (const RuntimeHandler& handler : handlers_) {
      const auto there = before_.runtimes().find(handler.name);
      if (there == before_.runtimes().end() || staying_.contains(handler.name)) continue;
      std::vector<std::string> places;
      for (const char* id : {kCriOfVersion1, kCriOfVersion2, kCriRuntime})
        std::ranges::move(
            places_of(without_, before_, {"plugins", id, "containerd", "runtimes", handler.name}),
            std::back_inserter(places));
      if (places.empty()) places.emplace_back("containerd");
      return fail(Errc::refused,
                  fmt::format("{} has a runtime {} that is not ours", fmt::join(places, ", "), handler.name),
                  "give Ferry's another name, or remove that one");
    }
    return {};
  }

  Result<RuntimePlan> plan_installation() {
    const auto problem = problem_of(now_);
    if (problem && (ours_.empty() || problem_of(before_))) return fail(would_not_run(*problem));
    if (auto r = check_snapshotters(handlers_, release_, "containerd"); !r) return fail(std::move(r).error());
    if (auto r = check_names(); !r) return fail(std::move(r).error());
    if (handlers_.empty() && touched_.empty()) return finish(files_, now_);
    if (auto r = check_main_lasts(); !r) return fail(std::move(r).error());
    const TomlTable base = problem ? before_.plugins : less_ours(true);
    if (handlers_.empty()) {
      const auto fault = fault_of(before_, base);
      if (!fault) return finish(without_, before_);
      return fail(Errc::refused, "without the runtimes that leave something else would change: " + *fault);
    }
    std::optional<std::string> why;
    std::optional<Error> closed;
    for (const EditPlace& candidate : candidates()) {
      const auto text = without_.read_if_there(candidate.file);
      if (!text) return fail(text.error());
      const bool new_main = !*text && candidate.file == place_.configuration;
      auto written = with_block(*text, body_of(candidate, handlers_, new_main, release_));
      if (!written) return fail(std::move(written).error().during(candidate.file.string()));
      ConfigFiles tried = without_;
      tried.suppose(candidate.file, std::move(*written));
      ContainerdOutcome after = predict(release_, place_, tried);
      const auto fault = fault_of(after, base);
      if (!fault) {
        touched_.insert(candidate.file);
        return finish(tried, std::move(after));
      }
      if (!why) why = candidate.file.string() + ": " + *fault;
      if (!closed) closed = closed_in(candidate, (*text).value_or(""));
    }
    if (!why) return fail(imports_no_folder());
    Error none{.code = Errc::refused,
               .message = "no place was found for the runtimes that changes nothing else: " + *why,
               .hint = {}};
    if (closed) {
      none.message += "; " + closed->message;
      none.hint = closed->hint;
    }
    return fail(std::move(none));
  }

  /// k3s and rke2 render the main file from a built-in template, or from one beside the file.
  Error imports_no_folder() const {
    const auto folder = place_.configuration.parent_path();
    for (const char* name : {"config-v3.toml.tmpl", "config.toml.tmpl"}) {
      if (!files_.read(folder / name)) continue;
      const std::string drop_ins = std::string(name).substr(0, std::string_view(name).find(".tmpl")) + ".d";
      return {
          .code = Errc::refused,
          .message = fmt::format("{}: it imports no folder of drop-ins: it is written at each start from "
                                 "{}, which has no such line",
                                 place_.configuration.string(), (folder / name).string()),
          .hint = fmt::format("begin the template with `{{{{ template \"base\" . }}}}` in place of its copy "
                              "of those lines, or with `imports = [\"{}/*.toml\"]`; restart the service "
                              "that writes the file, then run this again",
                              (folder / drop_ins).string())};
    }
    return {.code = Errc::refused,
            .message = fmt::format("{}: another program writes it at each start, and it imports no folder of "
                                   "drop-ins",
                                   place_.configuration.string()),
            .hint = "a newer k3s or rke2 imports a folder of drop-ins"};
  }

  /// Before 2.0 a drop-in's CRI section would replace the main file's whole section.
  Result<> check_main_lasts() const {
    if (release_.merges_sections() || !place_.rendered) return {};
    if (last_with(section_before_2()) != place_.configuration) return {};
    return fail(Errc::refused,
                fmt::format("{}: another program writes it at each start, and a drop-in of Ferry's would "
                            "replace its whole CRI section: containerd {} merges no sections",
                            place_.configuration.string(), release_.text()),
                "take a release of it with containerd 2");
  }

  const char* section_before_2() const {
    return last_version(before_.files) < 2 && without_.read(place_.configuration).has_value()
               ? kCriOfVersion1
               : kCriOfVersion2;
  }

  /// An error if a place fails because its table is an inline table.
  static std::optional<Error> closed_in(const EditPlace& candidate, const std::string& text) {
    const std::vector<std::string> keys = {"plugins", candidate.section, "containerd", "runtimes"};
    const auto closed = inline_table_on(text, keys);
    if (!closed) return std::nullopt;
    const std::vector<std::string> on_the_way(keys.begin(),
                                              keys.begin() + static_cast<std::ptrdiff_t>(closed->depth));
    return Error{
        .code = Errc::refused,
        .message = fmt::format("{}:{}: {} is an inline table, {{ … }}, to which no runtime can be added",
                               candidate.file.string(), closed->line, dotted(on_the_way)),
        .hint =
            fmt::format("write it without braces: each table under a header of its own, such as [{}.NAME], "
                        "and below that a line for each key",
                        dotted(keys))};
  }

  /// Why an outcome is wrong; absent: Ferry's runtimes are there, and the rest is unchanged.
  std::optional<std::string> fault_of(const ContainerdOutcome& after, const TomlTable& base) const {
    if (after.no_start) return "containerd would not start: " + after.no_start->message;
    if (after.no_cri) return after.no_cri->message;
    return first_difference(with_handlers(base, after.runtime_section, handlers_, release_), after.plugins,
                            "plugins");
  }

  std::optional<std::filesystem::path> drop_in() const {
    for (const ContainerdFile& file : before_.files) {
      for (const std::filesystem::path named : texts_at(file.root, {"imports"})) {
        if (named.filename() != "*.toml" ||
            named.parent_path().string().find_first_of("*?[") != std::string::npos)
          continue;
        return (place_.configuration.parent_path() / named.parent_path() / kDropIn).lexically_normal();
      }
    }
    return std::nullopt;
  }

  // The file whose section counts: before 2.0 the last file with the section.
  std::filesystem::path last_with(const std::string& section) const {
    std::filesystem::path out = place_.configuration;
    for (const ContainerdFile& file : before_.files) {
      if (find(file.root, {"plugins", section}) != nullptr) out = file.path;
    }
    return out;
  }

  std::vector<EditPlace> candidates() const {
    std::vector<EditPlace> out;
    const std::int64_t version = last_version(before_.files);
    if (!release_.merges_sections()) {
      const std::string section = section_before_2();
      const auto file = last_with(section);
      out.push_back({.file = file, .section = section});
      out.push_back({.file = file, .section = section, .with_runc = true});
      return out;
    }
    std::vector<std::filesystem::path> places = own_;
    if (const auto path = drop_in()) places.push_back(*path);
    if (!place_.rendered) places.push_back(place_.configuration);
    std::vector<std::string> sections = {kCriRuntime, kCriOfVersion2};
    if (version == 2) std::ranges::reverse(sections);
    if (version < 2) sections.emplace_back(kCriOfVersion1);
    for (const auto& place : places) {
      for (const std::string& section : sections) out.push_back({.file = place, .section = section});
    }
    return out;
  }

  // Unchanged files are left out.
  RuntimePlan finish(const ConfigFiles& desired, ContainerdOutcome after) const {
    RuntimePlan out;
    for (const std::filesystem::path& path : touched_) {
      FileChange change{.path = path, .before = {}, .after = {}};
      if (auto text = files_.read(path)) change.before = std::move(*text);
      if (auto text = desired.read(path)) change.after = std::move(*text);
      if (change.before != change.after) out.changes.push_back(std::move(change));
    }
    for (const FileChange& change : out.changes) {
      if (release_.merges_sections() || change.path == place_.configuration || !change.after) continue;
      out.notes.push_back(
          fmt::format("{} may be written anew by the program it is of, and our runtimes are gone then",
                      change.path.string()));
    }
    for (const RuntimeHandler& handler : handlers_) {
      if (!handler.snapshotter || has_snapshotter(now_.files, *handler.snapshotter)) continue;
      out.notes.push_back(
          fmt::format("{}: containerd's files name no snapshotter {} (proxy_plugins), and its pods fail "
                      "without one",
                      handler.name, *handler.snapshotter));
    }
    for (const auto& [name, entry] : ours_) {
      if (now_.runtimes().contains(name) && !after.runtimes().contains(name)) out.leaving.push_back(name);
    }
    out.notes.insert(out.notes.end(), notes_.begin(), notes_.end());
    out.after = std::move(after);
    out.files_now = now_.files;
    return out;
  }

  const ContainerdRelease& release_;
  const RuntimePlace& place_;
  const ConfigFiles& files_;
  std::vector<RuntimeHandler> handlers_;
  ConfigFiles without_;                     // without Ferry's runtimes
  ContainerdOutcome now_;                   // for files_
  ContainerdOutcome before_;                // for without_
  TomlTable ours_;                          // Ferry's runtimes by name
  std::vector<std::filesystem::path> own_;  // imported files with a block
  std::set<std::filesystem::path> touched_;
  std::set<std::string> staying_;  // desired runtimes that stay, in tables without marks
  std::vector<std::string> notes_;
};

}  // namespace

ConfiguredRuntime configured_runtime(const std::string& name, const std::filesystem::path& file,
                                     const TomlTable& entry) {
  ConfiguredRuntime out{{.name = name,
                         .shim = text_at(entry, {"runtime_path"}),
                         .configuration = text_at(entry, {"options", "ConfigPath"}),
                         .pod_annotations = texts_at(entry, {"pod_annotations"}),
                         .container_annotations = texts_at(entry, {"container_annotations"})},
                        file,
                        text_at(entry, {"runtime_type"})};
  if (auto snapshotter = text_at(entry, {"snapshotter"}); !snapshotter.empty())
    out.snapshotter = std::move(snapshotter);
  return out;
}

Result<RuntimePlan> plan_containerd(const ContainerdRelease& release, const RuntimePlace& place,
                                    const ConfigFiles& files, std::span<const RuntimeHandler> handlers) {
  return Planner(release, place, files, handlers).plan();
}

Result<RuntimePlan> plan_drop_in(const std::filesystem::path& path, std::optional<std::string> after,
                                 const std::vector<std::string>& ours, const ConfigFiles& files,
                                 std::span<const RuntimeHandler> handlers) {
  auto before = files.read_if_there(path);
  if (!before) return fail(std::move(before).error());
  RuntimePlan out;
  for (const std::string& name : ours) {
    if (std::ranges::find(handlers, name, &RuntimeHandler::name) == handlers.end())
      out.leaving.push_back(name);
  }
  if (*before != after)
    out.changes.push_back({.path = path, .before = std::move(*before), .after = std::move(after)});
  return out;
}

Result<std::vector<ConfiguredRuntime>> configured_in_containerd(const ContainerdRelease& release,
                                                                const RuntimePlace& place,
                                                                const ConfigFiles& files) {
  std::vector<ConfiguredRuntime> out;
  const auto now = predict(release, place, files);
  for (const auto& path : files_with_ours(place, now)) {
    const auto said = said_in_block(files, path);
    if (!said) return fail(said.error());
    for (const auto& [name, entry] : runtimes_in((*said).value_or(TomlTable()))) {
      if (name == "runc" || entry.table() == nullptr) continue;
      out.push_back(configured_runtime(name, path, *entry.table()));
    }
  }
  for (const ContainerdFile& file : now.files) {
    for (const UnmarkedRuntime& runtime : unmarked_runtimes(file.root)) {
      if (std::ranges::find(out, runtime.name, &ConfiguredRuntime::name) != out.end()) continue;
      out.push_back(configured_runtime(runtime.name, file.path, runtime.entry));
      out.back().unmarked = true;
    }
  }
  std::ranges::sort(out, {}, &ConfiguredRuntime::name);
  return out;
}

}  // namespace ferry::kata
