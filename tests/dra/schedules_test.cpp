// SPDX-License-Identifier: Apache-2.0
// Random schedules of claims on one node: allocate, prepare, publish again, restart, remove. No GPU memory is
// given out twice, whatever the order. A failure names its seed; --gtest_filter repeats it.
#include <algorithm>
#include <cstdlib>
#include <functional>
#include <iterator>
#include <map>
#include <random>
#include <set>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "dra/checkpoint.h"
#include "dra/names.h"
#include "dra/slices/publication.h"
#include "tests/dra/scheduler_model.h"
#include "tests/dra/some_gpus.h"

namespace ferry::dra {
namespace {

using test::DeviceRequest;
using test::l4;
using test::mixed;
using test::must;
using test::SchedulerModel;
using test::vgpu_of_type;
using test::vgpu_with_memory;
using test::whole_gpu;
using testing::IsEmpty;

int schedules() {
  const char* const count = std::getenv("FERRY_SCHEDULES");  // NOLINT(concurrency-mt-unsafe): one thread
  return count == nullptr ? 1'000 : std::atoi(count);        // NOLINT(cert-err34-c): 0 runs none
}

NodeModel whole_node() {
  return test::node_with({l4("0000:3b:00.0", 42), l4("0000:5e:00.0", 7), l4("0000:5f:00.0", 7),
                          mixed("0000:65:00.0", 5), test::in_instances("0000:ca:00.0", 9)});
}

/// The GPUs whose vGPUs must have one size.
enum class OneSize {
  nowhere,       ///< the scheduler knows nothing of sizes
  on_lone_gpus,  ///< those alone in their IOMMU group, which have compatibility groups
  everywhere,    ///< as the hardware has it
};

/// The devices by which memory is counted, independent of counters and of slices.
class Truth {
 public:
  Truth() {
    const NodeModel node = whole_node();
    for (const Gpu& gpu : node.gpus) {
      const bool alone = std::ranges::count(node.gpus, gpu.iommu_group, &Gpu::iommu_group) == 1;
      // A group whose first GPU is unplugged has another whole device.
      pieces_[whole_device_name(gpu.address)] = {
          .gpu = gpu.address, .group = gpu.iommu_group.value(), .whole = true};
      for (const VgpuType& type : gpu.types) {
        const std::uint32_t most = type.most_per_gpu.value_or(0);
        for (std::uint32_t i = 0; i < most; ++i) {
          const std::uint32_t number = gpu.mixed_sizes ? type.placements.at(i) : i;
          pieces_[vgpu_device_name(gpu.address, type.id, number)] = {.gpu = gpu.address,
                                                                     .group = gpu.iommu_group.value(),
                                                                     .alone = alone,
                                                                     .mixed = gpu.mixed_sizes,
                                                                     .fills = type.fills,
                                                                     .parts = most,
                                                                     .mib = type.framebuffer_mib,
                                                                     .first_unit = number,
                                                                     .units = type.size};
        }
      }
    }
  }

  /// Why these devices cannot exist together; empty: they can.
  std::string conflict(const std::vector<std::string>& devices, OneSize one_size) const {
    for (std::size_t i = 0; i < devices.size(); ++i)
      for (std::size_t j = 0; j < i; ++j) {
        const Piece& a = pieces_.at(devices[i]);
        const Piece& b = pieces_.at(devices[j]);
        const bool same_gpu = a.gpu == b.gpu;
        const bool has_one_size =
            one_size == OneSize::everywhere || (one_size == OneSize::on_lone_gpus && a.alone);
        if (devices[i] == devices[j] || (a.group == b.group && (a.whole || b.whole)) ||
            (same_gpu && a.mixed && overlap(a, b)) ||
            (same_gpu && !a.mixed && a.fills.empty() && has_one_size && a.mib != b.mib))
          return devices[i] + " and " + devices[j];
      }
    std::map<vfio::PciAddress, std::uint64_t> used;
    std::map<std::pair<vfio::PciAddress, std::string>, std::uint32_t> filled;
    for (const std::string& device : devices) {
      const Piece& piece = pieces_.at(device);
      used[piece.gpu] += piece.mib;
      if (!piece.fills.empty() && ++filled[{piece.gpu, piece.fills}] > piece.parts)
        return fmt::format("{}: more than {} of {}", device, piece.parts, piece.fills);
    }
    for (const auto& [gpu, mib] : used)
      if (mib > 24 * 1024) return fmt::format("{} MiB of {}", mib, gpu.text());
    return {};
  }

 private:
  struct Piece {
    vfio::PciAddress gpu;
    std::uint32_t group = 0;
    bool whole = false;
    bool alone = false;
    bool mixed = false;
    std::string fills = {};  // the part of the GPU
    std::uint32_t parts = 0;
    std::uint32_t mib = 0;
    std::uint32_t first_unit = 0;
    std::uint32_t units = 0;
  };
  static bool overlap(const Piece& a, const Piece& b) {
    return a.first_unit < b.first_unit + b.units && b.first_unit < a.first_unit + a.units;
  }

  std::map<std::string, Piece> pieces_;
};

class ClaimSchedules : public testing::TestWithParam<int> {
 protected:
  enum Event {
    claim_made,
    claim_prepared,
    claim_ended,
    published,
    driver_restarted,
    slices_wiped,
    health_changed,
    policy_changed,  // only in a rough schedule, as all that follow
    taints_changed,
    gpu_plugged,  // not in a prompt one
    count
  };

  /// A rough schedule withdraws devices. If GPUs are unplugged, or the scheduler sees slices late, two claims
  /// may be allocated one piece of memory, and only one of them is prepared. Half of the rough schedules are
  /// prompt: they have neither, and no two claims get the same memory.
  void run(std::uint64_t seed, bool rough) {
    std::mt19937_64 random(seed);
    draw_ = [&random](std::size_t most) {
      return std::uniform_int_distribution<std::size_t>(0, most - 1)(random);
    };
    rough_ = rough;
    prompt_ = rough && draw(2) == 0;
    node_ = whole_node();
    node_.server.counters = draw(4) != 0;
    node_.server.compatibility_groups = node_.server.counters && draw(2) == 0;
    for (Gpu& gpu : node_.gpus)
      if (!node_.server.counters && draw(2) == 0) allow_one_type(gpu);
    checkpoint_ = {.boot_id = "boot"};
    file_ = checkpoint_text(checkpoint_);
    publish();
    for (int event = 0; event < 48 && !HasFatalFailure(); ++event) happen(any_event());
    if (!HasFatalFailure()) settle();
  }

 private:
  std::size_t draw(std::size_t most) const { return draw_(most); }

  /// Half of the events begin claims, so that the GPUs are mostly in use.
  Event any_event() const {
    if (draw(2) == 0) return draw(2) == 0 ? claim_made : claim_prepared;
    Event end = rough_ ? count : policy_changed;
    if (prompt_) end = gpu_plugged;
    return static_cast<Event>(draw(static_cast<std::size_t>(end)));
  }

  /// Without counters, a GPU serves vGPUs of one type or is given whole.
  void allow_one_type(Gpu& gpu) const {
    gpu.whole = false;
    for (VgpuType& type : gpu.types) type.allowed = false;
    gpu.types.at(draw(gpu.types.size())).allowed = true;
  }

  void happen(Event event) {
    switch (event) {
      case claim_made:
        return make_claim();
      case claim_prepared:
        return prepare(any_claim());
      case claim_ended:
        return end(any_claim());
      case published:
        return publish();
      case driver_restarted:
        return restart();
      case slices_wiped:
        return slices_.clear();
      case health_changed: {
        Gpu& gpu = any_gpu();
        gpu.health = draw(5) != 0 ? GpuHealth::ready : GpuHealth::unhealthy;
        gpu.reason = "by chance";
        return;
      }
      case policy_changed: {
        Gpu& gpu = any_gpu();
        gpu.whole = draw(3) != 0;
        for (VgpuType& type : gpu.types) type.allowed = draw(3) != 0;
        if (!node_.server.counters && draw(2) == 0) allow_one_type(gpu);
        return;
      }
      case gpu_plugged: {
        const Gpu gpu = any_gpu();
        if (std::erase_if(node_.gpus, [&](const Gpu& one) { return one.address == gpu.address; }) != 0 &&
            draw(2) == 0)
          node_.gpus.push_back(gpu);
        if (node_.gpus.size() < 2 || draw(3) == 0) node_.gpus = whole_node().gpus;
        return;
      }
      case taints_changed:
        node_.server.taints = !node_.server.taints;
        return;
      case count:
        return;
    }
  }

  Gpu& any_gpu() { return node_.gpus.at(draw(node_.gpus.size())); }

  /// Empty: there is no claim.
  std::string any_claim() const {
    if (scheduler_.claims().empty()) return {};
    auto at = scheduler_.claims().begin();
    std::advance(at, static_cast<std::ptrdiff_t>(draw(scheduler_.claims().size())));
    return at->first;
  }

  // The scheduler.

  DeviceRequest any_request(const std::string& name) const {
    const std::vector<DeviceRequest::Selector> kinds = {whole_gpu(),
                                                        vgpu_of_type("L4-6Q"),
                                                        vgpu_of_type("L4-12Q"),
                                                        vgpu_of_type("A10-2Q"),
                                                        vgpu_of_type("A10-8Q"),
                                                        vgpu_of_type("A100X-1-5C"),
                                                        vgpu_of_type("A100X-1-5CME"),
                                                        vgpu_with_memory(draw(13) * test::kGiB)};
    DeviceRequest out{.name = name, .alternatives = {kinds.at(draw(kinds.size()))}};
    if (draw(4) == 0) out.alternatives.push_back(kinds.at(draw(kinds.size())));
    return out;
  }

  /// The scheduler may see slices late, but in a prompt schedule.
  void make_claim() {
    if (prompt_ || draw(4) != 0) scheduler_.see(slices_);
    std::vector<DeviceRequest> requests = {any_request("a")};
    if (draw(4) == 0) {
      // A claim for an extended resource has one request for several devices of one class.
      requests.front().alternatives.resize(1);
      requests.resize(1 + draw(3), requests.front());
    } else if (draw(4) == 0) {
      requests.push_back(any_request("b"));
    }
    scheduler_.allocate(fmt::format("claim-{:03}", ++claims_), requests);
    if (rough_ && !prompt_) return;
    const OneSize one_size = node_.server.compatibility_groups ? OneSize::on_lone_gpus : OneSize::nowhere;
    ASSERT_EQ(truth_.conflict(allocated_devices(), one_size), "")
        << "two claims were allocated the same memory";
  }

  std::vector<std::string> allocated_devices() const {
    std::vector<std::string> out;
    for (const auto& [claim, results] : scheduler_.claims())
      for (const SchedulerModel::Result& result : results) out.push_back(result.device);
    return out;
  }

  // The driver on the node. A "crash" is a return in the middle, after which the file alone is left.

  bool crashes() {
    if (draw(6) != 0) return false;
    restart();
    return true;
  }

  void restart() {
    checkpoint_ = for_boot(must(read_checkpoint(file_)), "boot");
    last_generation_ = 0;
  }

  NodeModel with_held() const {
    NodeModel out = node_;
    out.held = held_devices(checkpoint_);
    for (const std::string& device : allocated_devices()) out.allocated.insert(device);
    return out;
  }

  /// Slices are written one after the other, and a claim may be allocated in between.
  void publish() {
    const NodeModel node = with_held();
    const std::vector<ResourceSlice> next = slices_of(publication_of(node), node.owner, 0);
    last_generation_ = generation_for(slices_, next, last_generation_);
    for (const ResourceSlice& slice : next) {
      std::erase_if(slices_, [&](const ResourceSlice& old) { return old.index == slice.index; });
      slices_.push_back(slice);
      slices_.back().generation = last_generation_;
      if (draw(8) == 0) make_claim();
      if (draw(40) == 0) return;  // the driver was killed here
    }
    std::erase_if(slices_, [&](const ResourceSlice& old) { return old.index >= next.size(); });
  }

  void prepare(const std::string& claim) {
    const std::vector<SchedulerModel::Result>* const results = scheduler_.find(claim);
    if (results == nullptr) return;
    if (checkpoint_.find(claim) == nullptr) {
      const NodeModel node = with_held();
      const Publication publication = publication_of(node);
      std::vector<std::string> devices;
      for (const SchedulerModel::Result& result : *results) devices.push_back(result.device);
      if (!check_available(node, publication, devices, claim)) return;  // the claim waits
      if (!begin_prepare(checkpoint_, record_of(claim, *results, publication))) return;
    } else if (!begin_prepare(checkpoint_, *checkpoint_.find(claim))) {
      return;
    }
    file_ = checkpoint_text(checkpoint_);
    if (crashes()) return;
    const std::vector<ClaimDevice>& devices = checkpoint_.find(claim)->devices;
    for (const ClaimDevice& device : devices) made_[claim].insert(device.device.name);
    expect_sound_hardware();
    if (crashes()) return;
    must(finish_prepare(checkpoint_, claim, std::vector<api::PreparedDevice>(devices.size())));
    if (draw(6) == 0) return restart();  // before the file is written
    file_ = checkpoint_text(checkpoint_);
  }

  static CheckpointClaim record_of(const std::string& claim,
                                   const std::vector<SchedulerModel::Result>& results,
                                   const Publication& publication) {
    CheckpointClaim out{.uid = claim, .space = "n", .name = claim};
    for (const SchedulerModel::Result& result : results) {
      const PublishedDevice& published = *publication.device(result.device);
      ClaimDevice device{.request = result.request,
                         .pool = "node7/gpu-ferry",
                         .gpu = published.asked.gpu,
                         .device = published.device};
      device.device.taints.clear();
      if (!published.device.consumes.empty())
        device.counters = *publication.counter_set(published.device.consumes.at(0).set);
      out.devices.push_back(std::move(device));
    }
    return out;
  }

  void expect_sound_hardware() const {
    std::vector<std::string> devices;
    for (const auto& [claim, names] : made_) devices.insert(devices.end(), names.begin(), names.end());
    ASSERT_EQ(truth_.conflict(devices, OneSize::everywhere), "") << "two VMs have the same memory";
  }

  /// The pod ends, and its claim is removed. The API may forget the claim before the node does.
  void end(const std::string& claim) {
    if (!forgotten_.empty() && draw(3) == 0) {
      const std::string former = *forgotten_.begin();
      if (unprepare(former)) forgotten_.erase(former);
    }
    if (claim.empty()) return;
    if (draw(4) == 0) {
      scheduler_.deallocate(claim);
      forgotten_.insert(claim);
      return;
    }
    if (unprepare(claim)) scheduler_.deallocate(claim);
  }

  /// False: the driver was killed, and the kubelet asks again.
  bool unprepare(const std::string& claim) {
    if (!begin_unprepare(checkpoint_, claim)) return true;
    file_ = checkpoint_text(checkpoint_);
    if (crashes()) return false;
    made_.erase(claim);
    if (crashes()) return false;
    finish_unprepare(checkpoint_, claim);
    file_ = checkpoint_text(checkpoint_);
    return true;
  }

  /// No new claim gets a device that the node still has to free, also if the API has forgotten its claim; and
  /// while GPUs stay plugged, none that cannot be beside such devices.
  void expect_progress() {
    node_.server.taints = true;
    const NodeModel node = with_held();
    const std::vector<ResourceSlice> slices = slices_of(publication_of(node), node.owner, 1);
    scheduler_.see(slices);
    for (int i = 0; i < 8; ++i) {
      const std::string claim = fmt::format("late-{}", i);
      scheduler_.allocate(claim, {any_request("a")});
      const std::vector<SchedulerModel::Result>* const results = scheduler_.find(claim);
      if (results == nullptr) continue;
      std::vector<std::string> devices = {results->at(0).device};
      for (const HeldDevice& held : node.held) {
        ASSERT_NE(devices[0], held.device.name) << "the claim " << held.claim << " still has it";
        devices.push_back(held.device.name);
      }
      if (rough_ && !prompt_) continue;
      ASSERT_EQ(truth_.conflict(devices, OneSize::everywhere), "") << "the node would refuse the claim";
    }
  }

  /// All claims end. Then every GPU can be given whole, or has its GPU instances free.
  void settle() {
    expect_progress();
    const NodeModel fresh = whole_node();
    std::set<std::string> claims = forgotten_;
    for (const auto& [claim, results] : scheduler_.claims()) claims.insert(claim);
    for (const std::string& claim : claims) {
      for (int tries = 0; !unprepare(claim); ++tries) ASSERT_LT(tries, 200);
      scheduler_.deallocate(claim);
    }
    ASSERT_THAT(made_, IsEmpty());
    ASSERT_THAT(checkpoint_.claims, IsEmpty());
    node_.gpus = fresh.gpus;
    node_.server.taints = true;
    slices_.clear();
    const std::vector<ResourceSlice> next = slices_of(publication_of(with_held()), node_.owner, 1);
    scheduler_.see(next);
    for (const char* const claim : {"x", "y", "z"})
      ASSERT_TRUE(scheduler_.allocate(claim, {{.name = "a", .alternatives = {whole_gpu()}}}))
          << scheduler_.problem();
    for (const char* const type : {"A100X-1-5C", "A100X-1-5CME", "A100X-2-10C"})
      ASSERT_EQ(node_.server.counters,
                scheduler_.allocate(type, {{.name = "a", .alternatives = {vgpu_of_type(type)}}}))
          << scheduler_.problem();
    ASSERT_FALSE(scheduler_.allocate("v", {{.name = "a", .alternatives = {vgpu_with_memory(0)}}}));
  }

  const Truth truth_;
  std::function<std::size_t(std::size_t)> draw_;
  bool rough_ = false;
  bool prompt_ = false;
  NodeModel node_;
  Checkpoint checkpoint_;  // in the driver's memory
  std::string file_;       // on the disk
  std::uint64_t last_generation_ = 0;
  std::vector<ResourceSlice> slices_;  // in the API server
  SchedulerModel scheduler_;
  std::map<std::string, std::set<std::string>> made_;  // devices on the host, by claim
  std::set<std::string> forgotten_;                    // claims that only the node knows
  unsigned claims_ = 0;
};

TEST_P(ClaimSchedules, GiveNoMemoryOutTwice) {
  SCOPED_TRACE(fmt::format("seed {}", GetParam()));
  run(static_cast<std::uint64_t>(GetParam()), false);
}

TEST_P(ClaimSchedules, GiveNoMemoryOutTwiceWhileDevicesComeAndGo) {
  SCOPED_TRACE(fmt::format("seed {}", GetParam()));
  run(static_cast<std::uint64_t>(GetParam()), true);
}

INSTANTIATE_TEST_SUITE_P(Seeds, ClaimSchedules, testing::Range(0, schedules()));

}  // namespace
}  // namespace ferry::dra
