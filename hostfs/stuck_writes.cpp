// SPDX-License-Identifier: Apache-2.0
#include "hostfs/stuck_writes.h"

#include <ctime>
#include <map>
#include <sstream>

#include <nlohmann/json.hpp>

#include "common/text/whole_json.h"
#include "hostfs/check_reading.h"
#include "hostfs/kernel_facts.h"

namespace ferry {
namespace {

constexpr const char* kDirectory = "run/ferry/stuck-writes";

// Time since the boot, since records are void after the next. ABI: clock_gettime(2).
std::int64_t milliseconds_now() {
  timespec now{};
  ::clock_gettime(CLOCK_BOOTTIME, &now);
  return std::chrono::milliseconds(std::chrono::seconds(now.tv_sec)).count() + now.tv_nsec / 1'000'000;
}

std::filesystem::path proc(int pid, const char* file) {
  return std::filesystem::path("proc") / std::to_string(pid) / file;
}

std::filesystem::path record_of(const NumberedProcess& process) {
  return std::filesystem::path(kDirectory) / (file_name_of(process) + ".json");
}

NumberedProcess our_child(const HostFs& host, int pid) {
  return {.pid = pid, .pid_namespace = own_pid_namespace(host).value_or("")};
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

// The state of the host by which records are judged.
struct Present {
  Result<std::string> boot;           // an error: records of another boot cannot be told apart
  Result<std::string> pid_namespace;  // /proc's
};

Present present(const HostFs& host) {
  return {.boot = boot_id(host), .pid_namespace = pid_namespace_of_proc(host)};
}

// False if /proc is not of the process's PID namespace: its number means another process there. False also if
// the process cannot be read, for want of a descriptor, say: clear_ended_records() would remove its record.
bool has_ended(const HostFs& host, int pid, const nlohmann::json& record, const Present& now) {
  if (!now.pid_namespace || record.value("pid_namespace", "") != *now.pid_namespace) return false;
  const auto process = process_state(host, pid);
  if (!process) return is_gone(process.error()) || process.error().code == std::errc::no_such_process;
  // Empty: the writer of the record could not read it.
  const std::string started = record.value("start_time", "");
  return process->state == 'Z' || (!started.empty() && process->start_time != started);
}

Record parse(const HostFs& host, const std::string& text, const Present& now) {
  try {
    const auto json = parse_whole_json(text);
    Record out{.write = {.pid = json.at("pid").get<int>(),
                         .act = json.at("act").get<std::string>(),
                         .value = json.at("value").get<std::string>(),
                         .kernel_state = json.value("kernel_state", ""),
                         .late = json.value("late_at_ms", std::int64_t{0}) <= milliseconds_now()}};
    // Empty: the writer of the record could not read it.
    const std::string boot = json.value("boot_id", "");
    out.live = (!now.boot || boot.empty() || boot == *now.boot) && !has_ended(host, out.write.pid, json, now);
    return out;
  } catch (const nlohmann::json::exception&) {
    return {};  // not Ferry's: names no live write
  }
}

// All records, by the path of their file.
Result<std::map<std::filesystem::path, Record>> read_all(const HostFs& host) {
  const auto names = names_in(host, kDirectory);
  if (!names) return fail(names.error());
  const Present now = present(host);
  std::map<std::filesystem::path, Record> out;
  for (const std::string& name : *names) {
    if (!name.ends_with(".json") || name.starts_with('.')) continue;
    const auto path = std::filesystem::path(kDirectory) / name;
    const auto text = host.read_file(path);
    if (text) {
      out.emplace(path, parse(host, *text, now));
    } else if (!is_gone(text.error())) {
      Error error = text.error();
      if (error.hint.empty() && !lacks_means(error))
        error.hint = "remove it once no process of Ferry is in state D (ps), or restart the host";
      return fail(std::move(error));
    }
  }
  return out;
}

}  // namespace

std::string file_name_of(const NumberedProcess& process) {
  std::string name = std::to_string(process.pid);
  const std::string& space = process.pid_namespace;
  if (space.empty() || space == kHostsPidNamespace) return name;
  const auto open = space.find('[') + 1;
  return name + "-" + space.substr(open, space.find(']') - open);
}

Result<StuckWrite> record_stuck_write(HostFs& host, int pid, std::string act, std::string value,
                                      std::chrono::milliseconds left) {
  return record_stuck_act(host, our_child(host, pid), std::move(act), std::move(value), left);
}

Result<StuckWrite> record_stuck_act(HostFs& host, const NumberedProcess& by, std::string act,
                                    std::string value, std::chrono::milliseconds left) {
  const int pid = by.pid;
  StuckWrite write{.pid = pid,
                   .act = std::move(act),
                   .value = std::move(value),
                   .kernel_state = {},
                   .late = left.count() <= 0};
  ProcessState process;
  // In another PID namespace than that of /proc, the number means another process there.
  if (const auto shown = pid_namespace_of_proc(host);
      by.pid_namespace.empty() || !shown || by.pid_namespace == *shown) {
    process = process_state(host, pid).value_or(process);
    write.kernel_state = std::string("state ") + process.state;
    if (auto where = host.read_attribute(proc(pid, "wchan")); where && !where->empty() && *where != "0")
      write.kernel_state += " in " + *where;
  } else {
    write.kernel_state = "state unknown from this container";
  }
  (void)clear_ended_records(host);  // an unreadable record keeps no other from being written
  const nlohmann::json record = {{"version", 1},
                                 {"pid", pid},
                                 {"pid_namespace", by.pid_namespace},
                                 {"start_time", process.start_time},
                                 {"boot_id", boot_id(host).value_or("")},
                                 {"act", write.act},
                                 {"value", write.value},
                                 {"kernel_state", write.kernel_state},
                                 {"late_at_ms", milliseconds_now() + left.count()}};
  if (auto written = host.write_file(
          record_of(by), record.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n");
      !written)
    return fail(std::move(written).error());
  return write;
}

Result<> forget_stuck_act(HostFs& host, const NumberedProcess& by) {
  return host.remove_file(record_of(by));
}

Result<> forget_stuck_write(HostFs& host, int pid) {
  return forget_stuck_act(host, our_child(host, pid));
}

bool is_recorded(const HostFs& host, const NumberedProcess& by) {
  const auto text = host.read_file(record_of(by));
  return text && parse(host, *text, present(host)).live;
}

Result<> clear_ended_records(HostFs& host) {
  const auto records = read_all(host);
  if (!records) return fail(records.error());
  for (const auto& [path, record] : *records) {
    if (record.live) continue;
    if (auto removed = host.remove_file(path); !removed) return removed;
  }
  return {};
}

Result<std::vector<StuckWrite>> stuck_writes(const HostFs& host) {
  const auto records = read_all(host);
  if (!records) return fail(records.error());
  std::vector<StuckWrite> out;
  for (const auto& [path, record] : *records)
    if (record.live) out.push_back(record.write);
  return out;
}

bool is_read(const StuckWrite& write) {
  return write.act.starts_with("read ");
}

bool concerns(const StuckWrite& write, const std::string& device) {
  return write.value == device || write.act.find("/" + device + "/") != std::string::npos;
}

}  // namespace ferry
