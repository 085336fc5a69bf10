// SPDX-License-Identifier: Apache-2.0
#include "common/stuck_writes.h"

#include <sstream>

#include <nlohmann/json.hpp>

#include "common/boot_id.h"

namespace ferry {
namespace {

constexpr const char* kDirectory = "run/ferry/stuck";

std::filesystem::path proc(int pid, const char* file) {
  return std::filesystem::path("proc") / std::to_string(pid) / file;
}

std::filesystem::path record_of(int pid) {
  return std::filesystem::path(kDirectory) / (std::to_string(pid) + ".json");
}

struct ProcessState {
  char state = '?';
  std::string start_time;  // clock ticks since boot: tells a process from a later one with its number
};

// /proc/PID/stat: pid (name, which may hold anything) state ppid ... starttime is field 22.
Result<ProcessState> process_state(const HostFs& host, int pid) {
  auto text = host.read_attribute(proc(pid, "stat"));
  if (!text) return fail(std::move(text).error());
  const auto close = text->rfind(')');
  if (close == std::string::npos)
    return fail(Errc::malformed_host, "unreadable /proc/" + std::to_string(pid) + "/stat");
  std::istringstream fields(text->substr(close + 1));
  ProcessState out;
  fields >> out.state;
  constexpr int kFieldsBetween = 18;  // 4..21
  std::string skipped;
  for (int i = 0; i < kFieldsBetween; ++i) fields >> skipped;
  fields >> out.start_time;
  return out;
}

struct Record {
  StuckWrite write;
  bool live = false;
};

Record parse(const HostFs& host, const std::string& text, const std::string& boot) {
  const auto json = nlohmann::json::parse(text, nullptr, false);
  if (!json.is_object()) return {};
  try {
    Record out{.write = {.pid = json.at("pid").get<int>(),
                         .act = json.at("act").get<std::string>(),
                         .value = json.at("value").get<std::string>(),
                         .kernel_state = json.value("kernel_state", "")}};
    const auto process = process_state(host, out.write.pid);
    out.live = json.value("boot_id", "") == boot && process && process->state != 'Z' &&
               process->start_time == json.value("start_time", "");
    return out;
  } catch (const nlohmann::json::exception&) {
    return {};  // not ours, or half a file of an old version: it cannot name a live write
  }
}

// Calls f(path, record) for each record file.
template <typename F>
Result<> for_each_record(const HostFs& host, F f) {
  auto names = host.list(kDirectory);
  if (!names) {
    if (is_gone(names.error())) return {};
    return fail(std::move(names).error());
  }
  const std::string boot = boot_id(host).value_or("");
  for (const std::string& name : *names) {
    if (!name.ends_with(".json") || name.starts_with('.')) continue;
    const auto path = std::filesystem::path(kDirectory) / name;
    if (const auto text = host.read_file(path)) f(path, parse(host, *text, boot));
  }
  return {};
}

}  // namespace

Result<StuckWrite> record_stuck_write(HostFs& host, int pid, std::string act, std::string value) {
  StuckWrite write{.pid = pid, .act = std::move(act), .value = std::move(value), .kernel_state = {}};
  const auto process = process_state(host, pid).value_or(ProcessState{});
  write.kernel_state = std::string("state ") + process.state;
  if (auto where = host.read_attribute(proc(pid, "wchan")); where && !where->empty() && *where != "0") {
    write.kernel_state += " in " + *where;
  }
  std::vector<std::filesystem::path> ended;
  auto listed = for_each_record(host, [&](const auto& path, const Record& record) {
    if (!record.live) ended.push_back(path);
  });
  if (!listed) return fail(std::move(listed).error());
  for (const auto& path : ended) {
    if (auto removed = host.remove_file(path); !removed) return fail(std::move(removed).error());
  }
  const nlohmann::json record = {{"version", 1},
                                 {"pid", pid},
                                 {"start_time", process.start_time},
                                 {"boot_id", boot_id(host).value_or("")},
                                 {"act", write.act},
                                 {"value", write.value},
                                 {"kernel_state", write.kernel_state}};
  if (auto written = host.write_file(
          record_of(pid), record.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n");
      !written)
    return fail(std::move(written).error());
  return write;
}

Result<> forget_stuck_write(HostFs& host, int pid) {
  return host.remove_file(record_of(pid));
}

Result<std::vector<StuckWrite>> stuck_writes(const HostFs& host) {
  std::vector<StuckWrite> out;
  auto listed = for_each_record(host, [&](const auto& /*path*/, const Record& record) {
    if (record.live) out.push_back(record.write);
  });
  if (!listed) return fail(std::move(listed).error());
  return out;
}

bool concerns(const StuckWrite& write, const std::string& device) {
  return write.value == device || write.act.find("/" + device + "/") != std::string::npos;
}

}  // namespace ferry
