// SPDX-License-Identifier: Apache-2.0
// `ferry plugin` as the kubelet meets it, at 1, 8, 64 and 512 devices, beside a minimal server of the same
// gRPC (bare/) in the same run and NVIDIA's plugin v1.6.0 as it was measured once on such a machine of two
// processors.
//
// usage: plugin_bench [--tight] [--json FILE]; --tight: 30 s idle instead of 3, and the bounds as they are.
// Ends with 1 where ours takes more memory or processor time a call than the bare server.
#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <ctime>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "common/counted.h"
#include "tests/support/fake_kernel.h"
#include "tests/support/kubelet_standin/standin.h"

namespace ferry::test {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

constexpr auto kPatience = 60s;
constexpr int kCalls = 5000;
// Eight models, so that so many devices are eight resources.
constexpr std::array kModels = {"2330", "2684", "20b5", "1eb8", "26b9", "2235", "1db6", "2204"};

double milliseconds(Clock::duration span) {
  return std::chrono::duration<double, std::milli>(span).count();
}

/// A program that runs until it is told to end.
class Program {
 public:
  explicit Program(std::vector<std::string> words) {
    std::vector<char*> argv;
    argv.reserve(words.size() + 1);
    for (auto& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);
    pid_ = ::fork();
    if (pid_ != 0) return;
    const int null = ::open("/dev/null", O_RDWR);
    if (null < 0 || ::dup2(null, 0) < 0 || ::dup2(null, 1) < 0 || ::dup2(null, 2) < 0) ::_exit(126);
    ::execv(argv.front(), argv.data());
    ::_exit(127);
  }
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;
  Program(Program&&) = delete;
  Program& operator=(Program&&) = delete;
  ~Program() { end(); }

  Clock::duration end() {
    const auto begin = Clock::now();
    if (pid_ <= 0) return {};
    ::kill(pid_, SIGTERM);
    int status = 0;
    ::waitpid(std::exchange(pid_, 0), &status, 0);
    return Clock::now() - begin;
  }
  /// Of all its threads, those that have ended too.
  std::chrono::nanoseconds processor_time() const {
    clockid_t clock{};
    timespec time{};
    if (::clock_getcpuclockid(pid_, &clock) != 0 || ::clock_gettime(clock, &time) != 0) return {};
    return std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec);
  }
  /// How often a thread has gone to sleep.
  long long sleeps() const {
    return sum("status", [](const fs::path& file) { return field(file, "voluntary_ctxt_switches:"); });
  }
  long long resident_kib() const { return field(process() / "status", "VmRSS:"); }

 private:
  fs::path process() const { return fs::path("/proc") / std::to_string(pid_); }
  static long long field(const fs::path& file, const std::string& name) {
    std::ifstream in(file);
    for (std::string line; std::getline(in, line);)
      if (line.starts_with(name)) return std::stoll(line.substr(name.size()));
    return 0;
  }
  long long sum(const char* name, const std::function<long long(const fs::path&)>& read) const {
    long long total = 0;
    for (const auto& task : fs::directory_iterator(process() / "task")) total += read(task.path() / name);
    return total;
  }
  pid_t pid_ = 0;
};

struct Figures {
  double first_register_ms = 0;
  double last_register_ms = 0;
  double first_list_ms = 0;
  double alone_p50_us = 0;
  double alone_p99_us = 0;
  double eight_p50_us = 0;
  double eight_p99_us = 0;
  double processor_us_a_call = 0;
  double idle_mb = 0;
  double loaded_mb = 0;
  double idle_processor_ms = 0;
  double idle_sleeps = 0;
  double back_ms = 0;
  double end_ms = 0;
};

struct Row {
  const char* name;
  const char* key;
  double Figures::*value;
  std::optional<double> peer;  ///< NVIDIA's, at eight devices
};
const std::array<Row, 14> kRows = {{
    {"start to first Register, ms", "first_register_ms", &Figures::first_register_ms, 6.6},
    {"start to last Register, ms", "last_register_ms", &Figures::last_register_ms, 20},
    {"start to first list, ms", "first_list_ms", &Figures::first_list_ms, {}},
    {"Allocate, 1 client, p50, us", "alone_p50_us", &Figures::alone_p50_us, 117},
    {"Allocate, 1 client, p99, us", "alone_p99_us", &Figures::alone_p99_us, 251},
    {"Allocate, 8 clients, p50, us", "eight_p50_us", &Figures::eight_p50_us, 438},
    {"Allocate, 8 clients, p99, us", "eight_p99_us", &Figures::eight_p99_us, 1684},
    {"processor time a call, us", "processor_us_a_call", &Figures::processor_us_a_call, 98},
    {"resident idle, MB", "idle_mb", &Figures::idle_mb, 17.4},
    {"resident after 5,000 calls, MB", "loaded_mb", &Figures::loaded_mb, 20.3},
    {"processor time in 30 s idle, ms", "idle_processor_ms", &Figures::idle_processor_ms, {}},
    {"wake-ups in 30 s idle", "idle_sleeps", &Figures::idle_sleeps, {}},
    {"back after a kubelet restart, ms", "back_ms", &Figures::back_ms, 5.8},
    {"SIGTERM to exit, ms", "end_ms", &Figures::end_ms, 26},
}};

/// One program at one number of devices.
class Run {
 public:
  Run(std::string program, unsigned devices, std::chrono::seconds idle)
      : devices_(devices), resources_(std::min<unsigned>(devices, kModels.size())), idle_(idle) {
    kernel_.add_driver({.name = "vfio-pci", .vfio = true});
    kernel_.file("dev/vfio/vfio", "");
    kernel_.directory("kubelet");
    if (program.ends_with("ferry")) {
      for (unsigned i = 0; i < devices; ++i) {
        kernel_.add_function({.address = fmt::format("{:04x}:{:02x}:00.0", i / 256, i % 256),
                              .ids = std::string("10de:") + kModels[i % kModels.size()],
                              .group = i,
                              .driver = "vfio-pci"});
      }
      words_ = {std::move(program), "--host-root",         kernel_.root(),
                "plugin",           "--kubelet-directory", "/kubelet"};
    } else {
      words_ = {std::move(program), kernel_.root() / "kubelet", std::to_string(resources_),
                std::to_string(devices)};
    }
  }

  Figures measure() {
    Figures figures;
    kubelet_ = make_kubelet();
    const auto begin = Clock::now();
    Program program(words_);
    wait_for_all();
    {
      const std::scoped_lock lock(mutex_);
      figures.first_register_ms = milliseconds(registered_.front() - begin);
      figures.last_register_ms = milliseconds(registered_.back() - begin);
    }
    figures.first_list_ms = milliseconds(first_list_ - begin);
    rest(program, figures);
    calls(1, figures.alone_p50_us, figures.alone_p99_us);
    const auto before = program.processor_time();
    calls(8, figures.eight_p50_us, figures.eight_p99_us);
    figures.processor_us_a_call =
        std::chrono::duration<double, std::micro>(program.processor_time() - before).count() / kCalls;
    std::this_thread::sleep_for(1s);  // until what calls leave behind is over, on either side
    figures.loaded_mb = static_cast<double>(program.resident_kib()) * 1024 / 1e6;
    if (words_.front().ends_with("ferry")) {  // the bare one registers once
      kubelet_->stop();
      kubelet_ = make_kubelet(false);
      const auto again = Clock::now();
      if (!kubelet_->start()) throw std::runtime_error("the kubelet's stand-in does not start");
      wait_for_all();
      figures.back_ms = milliseconds(Clock::now() - again);
    }
    figures.end_ms = milliseconds(program.end());
    return figures;
  }

 private:
  std::unique_ptr<standin::Kubelet> make_kubelet(bool start = true) {
    auto kubelet = std::make_unique<standin::Kubelet>(
        kernel_.root() / "kubelet",
        standin::Options{.pod_resources = kernel_.root() / "var/lib/kubelet/pod-resources",
                         .on_register = [this] {
                           const std::scoped_lock lock(mutex_);
                           registered_.push_back(Clock::now());
                         }});
    if (start && !kubelet->start()) throw std::runtime_error("the kubelet's stand-in does not start");
    return kubelet;
  }

  void wait_for_all() {
    bool listed = false;
    const bool all = kubelet_->wait_for(
        [&](const standin::Resources& resources) {
          std::size_t count = 0;
          for (const auto& [name, resource] : resources) count += resource.allocatable();
          if (count > 0 && !std::exchange(listed, true)) first_list_ = Clock::now();
          return count == devices_;
        },
        kPatience);
    if (!all) throw std::runtime_error("not all devices are listed");
  }

  void rest(const Program& program, Figures& figures) const {
    std::this_thread::sleep_for(2s);  // a start's leftovers
    const auto time = program.processor_time();
    const auto sleeps = program.sleeps();
    std::this_thread::sleep_for(idle_);
    const double scale = 30.0 / static_cast<double>(idle_.count());
    figures.idle_processor_ms =
        std::chrono::duration<double, std::milli>(program.processor_time() - time).count() * scale;
    figures.idle_sleeps = static_cast<double>(program.sleeps() - sleeps) * scale;
    figures.idle_mb = static_cast<double>(program.resident_kib()) * 1024 / 1e6;
  }

  /// All calls are for free devices, each client's its own.
  void calls(unsigned clients, double& p50, double& p99) {
    std::vector<std::pair<std::string, std::string>> devices;  // resource, ID
    for (const auto& [name, resource] : kubelet_->resources())
      for (const auto& [id, device] : resource.devices) devices.emplace_back(name, id);
    std::vector<std::vector<double>> taken(clients);
    {
      std::vector<std::jthread> threads;
      for (unsigned client = 0; client < clients; ++client) {
        threads.emplace_back([&, client] {
          const auto& [resource, id] = devices[client % devices.size()];
          for (unsigned i = 0; i < kCalls / clients; ++i) {
            const auto begin = Clock::now();
            static_cast<void>(kubelet_->allocate(resource, {id}, true));
            taken[client].push_back(std::chrono::duration<double, std::micro>(Clock::now() - begin).count());
          }
        });
      }
    }
    std::vector<double> all;
    for (const auto& some : taken) all.insert(all.end(), some.begin(), some.end());
    std::ranges::sort(all);
    p50 = all[all.size() / 2];
    p99 = all[all.size() * 99 / 100];
  }

  const unsigned devices_;
  const unsigned resources_;
  const std::chrono::seconds idle_;
  FakeKernel kernel_;
  std::vector<std::string> words_;
  std::unique_ptr<standin::Kubelet> kubelet_;
  std::mutex mutex_;
  std::vector<Clock::time_point> registered_;
  Clock::time_point first_list_;
};

nlohmann::json to_json(const Figures& figures) {
  nlohmann::json out;
  for (const Row& row : kRows) out[row.key] = figures.*row.value;
  return out;
}

bool print(unsigned devices, const Figures& ours, const Figures& bare, bool tight) {
  fmt::print("{:34} {:>10} {:>10} {:>10}\n", counted(devices, "device"), "ferry", "bare", "NVIDIA's");
  for (const Row& row : kRows) {
    fmt::print("  {:32} {:>10.2f} {:>10.2f} {:>10}\n", row.name, ours.*row.value, bare.*row.value,
               devices == 8 && row.peer ? fmt::format("{:.1f}", *row.peer) : "-");
  }
  const double slack = tight ? 1.0 : 3.0;
  const bool held = ours.idle_mb <= bare.idle_mb * slack && ours.loaded_mb <= bare.loaded_mb * slack &&
                    ours.processor_us_a_call <= bare.processor_us_a_call * slack;
  if (!held) fmt::print("  more than the bare server takes\n");
  return held;
}

}  // namespace
}  // namespace ferry::test

int main(int argc, char** argv) {
  using namespace ferry::test;
  const std::vector<std::string> words(argv + 1, argv + argc);
  const bool tight = std::ranges::find(words, "--tight") != words.end();
  const fs::path build = fs::canonical("/proc/self/exe").parent_path().parent_path();
  nlohmann::json file = nlohmann::json::array();
  bool held = true;
  for (const unsigned devices : {1U, 8U, 64U, 512U}) {
    const auto idle = tight ? 30s : 3s;
    const Figures ours = Run((build / "bin/ferry").string(), devices, idle).measure();
    const Figures bare = Run((build / "bench/bare_plugin").string(), devices, idle).measure();
    held = print(devices, ours, bare, tight) && held;
    file.push_back({{"devices", devices}, {"ferry", to_json(ours)}, {"bare", to_json(bare)}});
  }
  const auto json = std::ranges::find(words, "--json");
  if (json != words.end() && json + 1 != words.end()) std::ofstream(*(json + 1)) << file.dump(2) << "\n";
  return held ? 0 : 1;
}
