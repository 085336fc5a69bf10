// SPDX-License-Identifier: Apache-2.0
#include "common/stuck_writes.h"

#include <sstream>

#include <nlohmann/json.hpp>

#include "common/boot_id.h"
#include "common/pid_namespace.h"
#include "common/whole_json.h"

namespace ferry {
namespace {

constexpr const char* kDirectory = "run/ferry/stuck";

std::filesystem::path proc(int pid, const char* file) {
  return std::filesystem::path("proc") / std::to_string(pid) / file;
}

// "700.json"; a number of another PID namespace than the host's may be there twice: "27-4026532188.json".
std::filesystem::path record_of(const HostFs& host, int pid) {
  std::string name = std::to_string(pid);
  if (const auto space = own_pid_namespace(host); space && *space != kHostsPidNamespace) {
    const auto open = space->find('[') + 1;
    name += "-" + space->substr(open, space->find(']') - open);
  }
  return std::filesystem::path(kDirectory) / (name + ".json");
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

// What a record is judged by.
struct Present {
  std::string boot;
  Result<std::string> pid_namespace;  // of /proc
};

// Of a process that /proc does not show under its number nobody can say that it has ended.
bool has_ended(const HostFs& host, int pid, const nlohmann::json& record, const Present& now) {
  if (!now.pid_namespace || record.value("pid_namespace", "") != *now.pid_namespace) return false;
  const auto process = process_state(host, pid);
  return !process || process->state == 'Z' || process->start_time != record.value("start_time", "");
}

Record parse(const HostFs& host, const std::string& text, const Present& now) {
  try {
    const auto json = parse_whole_json(text);
    Record out{.write = {.pid = json.at("pid").get<int>(),
                         .act = json.at("act").get<std::string>(),
                         .value = json.at("value").get<std::string>(),
                         .kernel_state = json.value("kernel_state", "")}};
    out.live = json.value("boot_id", "") == now.boot && !has_ended(host, out.write.pid, json, now);
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
  const Present now{.boot = boot_id(host).value_or(""), .pid_namespace = pid_namespace_of_proc(host)};
  for (const std::string& name : *names) {
    if (!name.ends_with(".json") || name.starts_with('.')) continue;
    const auto path = std::filesystem::path(kDirectory) / name;
    if (const auto text = host.read_file(path)) f(path, parse(host, *text, now));
  }
  return {};
}

}  // namespace

Result<StuckWrite> record_stuck_write(HostFs& host, int pid, std::string act, std::string value) {
  StuckWrite write{.pid = pid, .act = std::move(act), .value = std::move(value), .kernel_state = {}};
  ProcessState process;
  // In another PID namespace than that of /proc the number is somebody else's there.
  const auto ours = own_pid_namespace(host);
  if (const auto theirs = pid_namespace_of_proc(host); !ours || !theirs || *ours == *theirs) {
    process = process_state(host, pid).value_or(process);
    write.kernel_state = std::string("state ") + process.state;
    if (auto where = host.read_attribute(proc(pid, "wchan")); where && !where->empty() && *where != "0")
      write.kernel_state += " in " + *where;
  } else {
    write.kernel_state = "state unknown from this container";
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
                                 {"pid_namespace", own_pid_namespace(host).value_or("")},
                                 {"start_time", process.start_time},
                                 {"boot_id", boot_id(host).value_or("")},
                                 {"act", write.act},
                                 {"value", write.value},
                                 {"kernel_state", write.kernel_state}};
  if (auto written = host.write_file(
          record_of(host, pid), record.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n");
      !written)
    return fail(std::move(written).error());
  return write;
}

Result<> forget_stuck_write(HostFs& host, int pid) {
  return host.remove_file(record_of(host, pid));
}

Result<std::vector<StuckWrite>> stuck_writes(const HostFs& host) {
  std::vector<StuckWrite> out;
  auto listed = for_each_record(host, [&](const auto& /*path*/, const Record& record) {
    if (record.live) out.push_back(record.write);
  });
  if (!listed) return fail(std::move(listed).error());
  return out;
}

bool is_read(const StuckWrite& write) {
  return write.act.starts_with("read ");
}

bool concerns(const StuckWrite& write, const std::string& device) {
  return write.value == device || write.act.find("/" + device + "/") != std::string::npos;
}

}  // namespace ferry
