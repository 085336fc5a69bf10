// SPDX-License-Identifier: Apache-2.0
// How long hostd takes to prepare a ResourceClaim, from the request at its socket to the answer, against the
// command that does the same by hand: a whole IOMMU group against `ferry vfio bind`, a vGPU against `ferry
// vgpu apply`. The command is a start of the program (`ferry --version`) and its verb, which runs here, since
// the fake kernel reacts to writes of this process alone. Then the same from the kubelet's request on, as
// `ferry dra` serves it: it reads the claim, asks hostd, and writes its checkpoint and the files of the pod.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <future>
#include <memory>
#include <span>
#include <stdexcept>
#include <stop_token>
#include <string>
#include <string_view>
#include <thread>
#include <unistd.h>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "api/claim_request.h"
#include "api/claimable_gpus.h"
#include "api/files.h"
#include "cli/options/selection.h"
#include "cli/session.h"
#include "cli/verbs/node_inputs.h"
#include "cli/verbs/verbs.h"
#include "common/event_loop.h"
#include "common/exit_status.h"
#include "common/log.h"
#include "common/process/spawn.h"
#include "common/result.h"
#include "dra/claims/claim_driver.h"
#include "dra/names.h"
#include "host/claims/claim_keeper.h"
#include "host/claims/claim_server.h"
#include "host/node_apply.h"
#include "hostfs/host_writer.h"
#include "policy/accelerators.h"
#include "tests/bench/pairs.h"
#include "tests/support/claim_client.h"
#include "tests/support/fake_kernel.h"
#include "tests/support/fake_mdev.h"
#include "tests/support/must.h"
#include "vfio/bind/rebind_apply.h"
#include "vfio/pci/pci_address.h"
#include "vfio/use_probe.h"

namespace ferry::test {
namespace {

constexpr unsigned kGpus = 8;
constexpr const char* kWhole = "0000:01:00.0";
constexpr const char* kDivided = "0000:08:00.0";  // the last GPU: number 7 of a profile
constexpr const char* kType = "nvidia-232";       // T4-4Q
constexpr const char* kProfile =
    "version: v1\nvgpu-configs:\n  one: [{devices: [7], vgpu-devices: {T4-4Q: 1}}]\n";
constexpr std::chrono::seconds kPatience{20};
constexpr const char* kNode = "node7";
constexpr const char* kUid = "5be0c3aa-2f4d-4a3e-8d55-9d1f5a0c7711";
constexpr const char* kSpace = "studio";
constexpr const char* kName = "render-a";

/// No device has a user.
class NoUsers final : public vfio::UseProbe {
 public:
  Result<vfio::UseReport> look(std::span<const vfio::UseQuestion> /*questions*/) override {
    return vfio::UseReport{};
  }
};

/// Writes to a fake kernel that another object owns.
class WriterOf final : public HostWriter {
 public:
  explicit WriterOf(FakeKernel& kernel) : kernel_(kernel) {}
  Result<> write(const std::filesystem::path& relative, std::string_view value,
                 std::chrono::milliseconds deadline) override {
    return kernel_.write(relative, value, deadline);
  }
  Result<> load_module(std::string_view name, std::chrono::milliseconds deadline) override {
    return kernel_.load_module(name, deadline);
  }
  Result<> unload_module(std::string_view name, std::chrono::milliseconds deadline) override {
    return kernel_.unload_module(name, deadline);
  }
  Result<> run(const HostCommand& command, std::chrono::milliseconds deadline) override {
    return kernel_.run(command, deadline);
  }
  Result<std::string> read(const std::filesystem::path& relative,
                           std::chrono::milliseconds deadline) override {
    return kernel_.read(relative, deadline);
  }

 private:
  FakeKernel& kernel_;
};

/// An API server whose claims all have one device.
class OneDevice final : public dra::ClaimReader {
 public:
  void read(const dra::ClaimKey& key, Done done) override {
    nlohmann::json claim;
    claim["metadata"]["uid"] = key.uid;
    nlohmann::json& results = claim["status"]["allocation"]["devices"]["results"];
    results = nlohmann::json::array();
    results.push_back({{"request", "card"},
                       {"driver", std::string(dra::kDriver)},
                       {"pool", dra::pool_name(kNode)},
                       {"device", device}});
    done(Result<nlohmann::json>(std::move(claim)));
  }
  void read_class(const std::string& /*name*/, Done done) override { done(nlohmann::json::object()); }

  std::string device;
};

class PublishedGpus final : public dra::ModelSource {
 public:
  explicit PublishedGpus(std::vector<api::ClaimableGpu> gpus) : gpus_(std::move(gpus)) {}
  Result<dra::NodeModel> node() const override {
    return dra::NodeModel{
        .owner = {.node = kNode}, .gpus = gpus_, .server = {.counters = true, .taints = true}};
  }

 private:
  const std::vector<api::ClaimableGpu> gpus_;
};

class NoEvents final : public dra::ClaimEvents {
 public:
  void failed(const dra::ClaimKey& /*claim*/, api::ClaimAction /*action*/, const Error& /*error*/) override {}
  void warned(const dra::ClaimKey& /*claim*/, const std::string& /*sentence*/) override {}
  void lost(const dra::ClaimKey& /*claim*/, const std::string& /*sentence*/) override {}
};

struct CloseFile {
  void operator()(std::FILE* file) const {
    (void)std::fclose(file);  // NOLINT(cppcoreguidelines-owning-memory): unique_ptr owns it
  }
};

cli::Session session_of(std::unique_ptr<FakeKernel> kernel, std::FILE* out) {
  cli::Session session;
  session.writer = std::make_unique<WriterOf>(*kernel);
  session.host = std::move(kernel);
  session.probe = std::make_unique<NoUsers>();
  session.vgpu_probe = std::make_unique<NoUsers>();
  session.open_probe = std::make_unique<NoUsers>();
  session.rules = policy::default_accelerator_rules();
  session.out = out;
  return session;
}

/// Eight T4s, each with its audio function in one IOMMU group. The last one makes vGPUs. Both GPUs of a
/// contest are for claims, and a thread serves requests about them.
class Node {
 public:
  Node() : Node(std::make_unique<FakeKernel>()) {}

  void prepare(const api::RequestedDevice& device) {
    ask(api::ClaimAction::prepare, {device});
    undo_ = [this] { ask(api::ClaimAction::unprepare, {}); };
  }
  /// Prepares a device as the kubelet asks for it. `device`: its name in the slices.
  void prepare_for_kubelet(const std::string& device) {
    claims_.device = device;
    call(&dra::ClaimDriver::prepare);
    undo_ = [this] { call(&dra::ClaimDriver::unprepare); };
  }
  void bind() {
    start_program();
    cli::SelectionOptions options;
    options.devices = {kWhole};
    require_done(cli::bind_verb(session_, options, vfio::Direction::to_vfio));
    undo_ = [this, options] { require_done(cli::bind_verb(session_, options, vfio::Direction::back)); };
  }
  void create() {
    start_program();
    cli::ProfileOptions options;
    options.file = kernel_.root() / "profile.yaml";
    require_done(cli::vgpu_apply_verb(session_, options));
    undo_ = [this] {
      cli::VgpuDeleteOptions removal;
      removal.devices = {kDivided};
      require_done(cli::vgpu_delete_verb(session_, removal));
    };
  }
  /// Undoes the last one of these.
  void undo() {
    undo_();
    kernel_.forget_changes();
  }
  /// The driver of the whole GPU and the number of vGPUs, which a claim and the command change alike.
  std::string state() const {
    return fmt::format("{} {}", kernel_.driver_of(kWhole), mdev_.devices_on(kDivided).size());
  }
  /// The mean time of a start of the program.
  double start_milliseconds() const {
    return std::chrono::duration<double, std::milli>(starting_).count() / starts_;
  }

 private:
  explicit Node(std::unique_ptr<FakeKernel> kernel)
      : kernel_(*kernel), session_(session_of(std::move(kernel), silence_.get())), mdev_(kernel_) {
    kernel_.add_driver({.name = "nvidia", .ids = {"10de:1eb8"}});
    kernel_.add_driver({.name = "snd_hda_intel", .ids = {"class:0403"}});
    for (unsigned number = 1; number <= kGpus; ++number) add_gpu(number);
    mdev_.add_parent(kDivided);
    kernel_.file("dev/vfio/vfio", "");
    kernel_.file("etc/machine-id", "6e6f6465000040008000000000000001\n");
    kernel_.file("profile.yaml", kProfile);
    must(kernel_.load_module("vfio_pci"));
    must(kernel_.write_file(api::kClaimableGpusFile, api::claimable_gpus_text(gpus_for_claims())));
    must(server_.keep());
    driver_ = must(dra::ClaimDriver::open(
        {.loop = *loop_, .host = kernel_, .reader = claims_, .node = gpus_, .events = events_, .changed = {}},
        {.node = kNode}));
    thread_ = std::jthread([this](const std::stop_token& stop) { loop_->run(stop); });
  }
  void add_gpu(unsigned number) {
    const std::string address = fmt::format("0000:{:02x}:00.", number);
    kernel_.add_function({.address = address + "0",
                          .ids = "10de:1eb8",
                          .subsystem_ids = "10de:12a2",
                          .class_code = 0x030200,
                          .group = number,
                          .driver = "nvidia"});
    kernel_.add_function({.address = address + "1",
                          .ids = "10de:10f8",
                          .class_code = 0x040300,
                          .group = number,
                          .driver = "snd_hda_intel"});
  }
  static std::vector<api::ClaimableGpu> gpus_for_claims() {
    std::vector<api::ClaimableGpu> out;
    for (unsigned number = 1; number <= kGpus; ++number) {
      api::ClaimableGpu gpu{.address =
                                must(vfio::PciAddress::parse(fmt::format("0000:{:02x}:00.0", number)))};
      gpu.iommu_group = number;
      gpu.vendor = 0x10de;
      gpu.device = 0x1eb8;
      gpu.product = "TU104GL [Tesla T4]";
      gpu.memory_mib = 16384;
      out.push_back(gpu);
    }
    out.back().framework = api::VgpuFramework::mdev;
    for (const FakeVgpuType& type : t4_types())
      out.back().types.push_back({.id = type.id,
                                  .name = type.name,
                                  .short_name = type.name.substr(std::string_view("GRID ").size()),
                                  .framebuffer_mib = type.framebuffer_mib,
                                  .most_per_gpu = type.max_instances});
    return out;
  }

  void ask(api::ClaimAction action, const std::vector<api::RequestedDevice>& devices) const {
    api::ClaimRequest request{.action = action, .claim = kUid, .space = kSpace, .name = kName};
    for (const api::RequestedDevice& device : devices)
      request.devices.push_back(
          {.device = device, .request = "card", .pool = "node7/gpu-ferry", .name = "device-0"});
    must(api::read_claim_answer(must(ask_hostd(kernel_, api::claim_request_text(request), kPatience))));
  }
  using Call = void (dra::ClaimDriver::*)(const std::vector<dra::ClaimKey>&, dra::ClaimDriver::Done);
  void call(Call method) {
    std::promise<std::vector<dra::ClaimAnswer>> answered;
    loop_->post([&] {
      ((*driver_).*method)(
          {{.uid = kUid, .space = kSpace, .name = kName}},
          [&](std::vector<dra::ClaimAnswer> answers) { answered.set_value(std::move(answers)); });
    });
    must(answered.get_future().get().front().devices);
  }
  void start_program() {
    const auto begin = std::chrono::steady_clock::now();
    const int status = reap(must(spawn(program_, {"ferry", "--version"}, {})));
    if (status != 0) throw std::runtime_error(fmt::format("{} ended with {}", program_.string(), status));
    starting_ += std::chrono::steady_clock::now() - begin;
    ++starts_;
  }
  static void require_done(ExitStatus status) {
    if (status != ExitStatus::done)
      throw std::runtime_error(fmt::format("the command ended with {}", static_cast<int>(status)));
  }

  const std::filesystem::path program_ =
      std::filesystem::canonical("/proc/self/exe").parent_path().parent_path() / "bin/ferry";
  const std::unique_ptr<std::FILE, CloseFile> silence_{std::fopen("/dev/null", "w")};
  FakeKernel& kernel_;  // of the session
  cli::Session session_;
  FakeMdev mdev_;
  std::function<void()> undo_;
  std::chrono::nanoseconds starting_{};
  unsigned starts_ = 0;
  std::unique_ptr<EventLoop> loop_ = must(EventLoop::create());
  host::ClaimKeeper keeper_{
      kernel_, cli::node_probes(session_),
      [this](const host::NodeProbes& uses) { return cli::node_context(session_, uses); },
      host::ClaimSettings{}};
  host::ClaimServer server_{*loop_, kernel_,
                            host::ClaimServerSettings{.user = ::geteuid(), .group = ::getegid()},
                            [this](const api::ClaimRequest& request) { return keeper_.serve(request); }};
  OneDevice claims_;
  PublishedGpus gpus_{gpus_for_claims()};
  NoEvents events_;
  std::unique_ptr<dra::ClaimDriver> driver_;
  std::jthread thread_;  // last: it uses all of these
};

/// Ends with an error unless a claim and the command have the same effect, and both are undone.
void compare(Node& node, const std::function<void()>& claim, const std::function<void()>& command) {
  const std::string before = node.state();
  claim();
  const std::string by_claim = node.state();
  node.undo();
  const std::string between = node.state();
  command();
  const std::string by_command = node.state();
  node.undo();
  if (by_claim == before || by_claim != by_command || between != before || node.state() != before)
    throw std::runtime_error(
        fmt::format("not the same: {}, by a claim {}, then {}, by the command {}, then {}", before, by_claim,
                    between, by_command, node.state()));
}

int run(int argc, char** argv) {
  must(set_up_log("warn", LogFormat::text));
  Node node;
  int worst = 0;
  const auto contest = [&](std::string name, std::string baseline, double bound,
                           const std::function<void()>& claim, const std::function<void()>& command) {
    compare(node, claim, command);
    const int status = run_contest({.name = std::move(name),
                                    .baseline = std::move(baseline),
                                    .ours = claim,
                                    .theirs = command,
                                    .bound = bound,
                                    .waits = true,
                                    .passes = 4,
                                    .pairs = 5,
                                    .between = [&node] { node.undo(); }},
                                   argc, argv);
    worst = std::max(worst, status);
  };
  const api::RequestedDevice whole{.gpu = must(vfio::PciAddress::parse(kWhole))};
  const api::RequestedDevice divided{.gpu = must(vfio::PciAddress::parse(kDivided)), .type = kType};
  contest(
      "preparing a claim for a GPU with its IOMMU group", "`ferry vfio bind`", 1.3,
      [&] { node.prepare(whole); }, [&] { node.bind(); });
  contest(
      "preparing a claim for a vGPU", "`ferry vgpu apply`", 1.3, [&] { node.prepare(divided); },
      [&] { node.create(); });
  contest(
      "the kubelet's request for a GPU with its IOMMU group", "`ferry vfio bind`", 1.3,
      [&] { node.prepare_for_kubelet(dra::whole_device_name(whole.gpu)); }, [&] { node.bind(); });
  contest(
      "the kubelet's request for a vGPU", "`ferry vgpu apply`", 1.3,
      [&] { node.prepare_for_kubelet(dra::vgpu_device_name(divided.gpu, kType, 0)); },
      [&] { node.create(); });
  fmt::print("of each command, the start of the program takes {:.2f} ms\n", node.start_milliseconds());
  return worst;
}

}  // namespace
}  // namespace ferry::test

int main(int argc, char** argv) {
  return ferry::test::run_benchmark(argc, argv, ferry::test::run);
}
