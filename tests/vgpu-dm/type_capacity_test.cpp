// SPDX-License-Identifier: Apache-2.0
#include "vgpu-dm/types/type_capacity.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "mdev/framework.h"
#include "tests/vgpu-dm/gpu_node.h"
#include "vgpu-dm/plan/gpu_capacity.h"
#include "vgpu-dm/plan/gpu_match.h"
#include "vgpu-dm/types/type_names.h"
#include "vgpu-dm/types/type_table.h"

namespace ferry::vgpu {
namespace {

using test::message_of;
using test::on;
using testing::HasSubstr;

constexpr std::uint16_t kRtxPro6000 = 0x2bb5;
constexpr std::uint16_t kA100 = 0x20b0;
constexpr std::uint16_t kL40s = 0x26b9;
constexpr std::uint16_t kUnknown = 0x3fff;  // in no table

/// A GPU of vendor-specific VFIO whose free virtual functions each list the same types.
class TypeCapacity : public testing::Test {
 protected:
  static constexpr unsigned kFunctions = 48;

  void board(std::uint16_t device) {
    gpu.function.vendor = 0x10de;
    gpu.function.device = device;
    gpu.function.driver = "nvidia";
    gpu.function.sriov_totalvfs = kFunctions;
    gpu.function.sriov_numvfs = kFunctions;
    gpu.framework = &mdev::vendor_vfio();
    gpu.host_driver = true;
  }
  void offer(std::initializer_list<const char*> names) {
    for (const char* name : names)
      offered.push_back({.id = std::to_string(9000 + offered.size()),
                         .name = std::string("NVIDIA Some ") + name,
                         .short_name = name,
                         .available = 1});
  }
  /// One more vGPU, on a GPU instance if the driver tells it.
  void carry(const char* name, std::optional<std::uint32_t> instance = {}) {
    mdev::VgpuDevice& device = gpu.devices.emplace_back();
    device.short_name = name;
    device.type_name = std::string("NVIDIA Some ") + name;
    device.type_id = device.type_name;
    device.gpu_instance = instance;
  }
  /// The GPU as every scan completes it.
  mdev::VgpuGpu scanned() const {
    mdev::VgpuGpu out = gpu;
    for (unsigned i = 0; i < functions; ++i) {
      mdev::VgpuParent& parent = out.parents.emplace_back();
      parent.address = {
          .bus = 1, .device = static_cast<std::uint8_t>(i / 8), .function = static_cast<std::uint8_t>(i % 8)};
      if (i >= gpu.devices.size()) parent.types = offered;
    }
    fill_in({&out, 1});
    return out;
  }
  /// "8192 MiB, 3 of 12": what can be made now, and on an empty GPU. "?": not known.
  std::string capacity(const char* name) const {
    for (const mdev::VgpuType& type : types_of(scanned())) {
      if (type.short_name != name) continue;
      return fmt::format("{} MiB, {}{} of {}",
                         type.framebuffer_mib ? std::to_string(*type.framebuffer_mib) : "?",
                         type.fewer_may_fit ? "up to " : "", type.available,
                         type.max_instances ? std::to_string(*type.max_instances) : "?");
    }
    return "none";
  }
  /// The refusal of a request for GPU instances; empty: they fit.
  std::string lacking(const char* vgpus) const {
    const mdev::VgpuGpu now = scanned();
    const Profile profile = on("all", vgpus);
    const auto error = lacking_instances(match_gpu(profile.items.front(), now, {}, {}), now);
    return error ? message_of(error) : "";
  }

  mdev::VgpuGpu gpu;
  std::vector<mdev::VgpuType> offered;
  unsigned functions = kFunctions;  ///< on the driver; the others are on another one
};

TEST_F(TypeCapacity, MigBackedTypesOfEachSeriesHaveTheRoomOfTheirGpuInstances) {
  board(kRtxPro6000);
  offer({"DC-1-24Q", "DC-1-24A", "DC-1-24B", "DC-1-2A", "DC-2-12A", "DC-2-48A", "DC-4-96A", "DC-4-24A",
         "DC-1-2", "DC-1-24ANOME"});
  EXPECT_EQ(capacity("DC-1-24Q"), "24576 MiB, 4 of 4");
  EXPECT_EQ(capacity("DC-1-24A"), "24576 MiB, 4 of 4");
  EXPECT_EQ(capacity("DC-1-24ANOME"), "24576 MiB, 4 of 4") << "NOME is not ME";
  EXPECT_EQ(capacity("DC-1-24B"), "24576 MiB, 4 of 4") << "no line of the table, but one of its size";
  EXPECT_EQ(capacity("DC-1-2A"), "2048 MiB, 48 of 48");
  EXPECT_EQ(capacity("DC-2-12A"), "12288 MiB, 8 of 8");
  EXPECT_EQ(capacity("DC-2-48A"), "49152 MiB, 2 of 2");
  EXPECT_EQ(capacity("DC-4-96A"), "98304 MiB, 1 of 1");
  EXPECT_EQ(capacity("DC-4-24A"), "24576 MiB, 4 of 4");
  EXPECT_EQ(capacity("DC-1-2"), "2048 MiB, 48 of 48") << "a name without a series";
}

TEST_F(TypeCapacity, ATypeThatTheTableLacksIsBoundByTheLargestOfItsKind) {
  board(kRtxPro6000);
  offer({"DC-1-5A", "DC-2-5Q", "DC-5B", "DC-40A"});
  EXPECT_EQ(capacity("DC-1-5A"), "5120 MiB, 16 of 16") << "four on each of four instances of 24 GiB";
  EXPECT_EQ(capacity("DC-2-5Q"), "5120 MiB, 18 of 18");
  EXPECT_EQ(capacity("DC-5B"), "5120 MiB, 19 of 19");
  EXPECT_EQ(capacity("DC-40A"), "40960 MiB, 2 of 2");
}

TEST_F(TypeCapacity, TypesWithMediaEnginesAreAKindOfTheirOwn) {
  board(kA100);
  offer({"A100X-1-5C", "A100X-1-5CME", "A100X-2-10C", "A100X-3-20C", "A100X-7-40C", "A100X-1-5A"});
  EXPECT_EQ(capacity("A100X-1-5C"), "5120 MiB, 7 of 7");
  EXPECT_EQ(capacity("A100X-1-5CME"), "5120 MiB, 1 of 1");
  EXPECT_EQ(capacity("A100X-2-10C"), "10240 MiB, 3 of 3");
  EXPECT_EQ(capacity("A100X-1-5A"), "5120 MiB, 7 of 7");
}

TEST_F(TypeCapacity, ABoardWithoutATableGoesByItsNames) {
  board(kUnknown);
  offer({"X9-48Q", "X9-12A", "X9-0B", "X9-2B4", "X9-24", "3060"});
  EXPECT_EQ(capacity("X9-48Q"), "49152 MiB, 1 of 1");
  EXPECT_EQ(capacity("X9-12A"), "12288 MiB, 4 of 4");
  EXPECT_EQ(capacity("X9-0B"), "512 MiB, 48 of 48") << "one on each function";
  EXPECT_EQ(capacity("X9-2B4"), "2048 MiB, 24 of 24");
  EXPECT_EQ(capacity("X9-24"), "24576 MiB, 2 of 2");
  EXPECT_EQ(capacity("3060"), "? MiB, up to 48 of ?");
}

TEST_F(TypeCapacity, WithoutATableSlicesAreABoundForGpuInstances) {
  board(kUnknown);
  offer({"X9-1-12Q", "X9-1-24A", "X9-1-24CME", "X9-3-48C", "X9-4-96C", "X9-7-96C"});
  EXPECT_EQ(capacity("X9-1-24A"), "24576 MiB, up to 7 of ?");
  EXPECT_EQ(capacity("X9-1-12Q"), "12288 MiB, up to 14 of ?") << "an instance may carry two";
  EXPECT_EQ(capacity("X9-1-24CME"), "24576 MiB, 1 of ?");
  EXPECT_EQ(capacity("X9-3-48C"), "49152 MiB, up to 2 of ?");
  EXPECT_EQ(capacity("X9-4-96C"), "98304 MiB, 1 of ?");
  EXPECT_EQ(capacity("X9-7-96C"), "98304 MiB, 1 of ?");
  EXPECT_EQ(lacking("{X9-1-24A: 7}"), "");
  EXPECT_THAT(lacking("{X9-1-24A: 8}"), HasSubstr("no room for 8 x X9-1-24A: 7 fit"));
  EXPECT_THAT(lacking("{X9-4-96C: 2}"), HasSubstr("no room for 2 x X9-4-96C: 1 fit"));
  // Its driver may hide the largest type then.
  carry("X9-1-12Q");
  EXPECT_EQ(capacity("X9-1-24A"), "24576 MiB, up to 47 of ?");
  EXPECT_EQ(lacking("{X9-1-24A: 47}"), "");
}

TEST_F(TypeCapacity, AFunctionCarriesOneVgpu) {
  board(kL40s);
  offer({"L40S-1Q", "L40S-0Q", "L40S-12Q", "L40S-48Q"});
  for (const unsigned number : {16U, 12U}) {
    functions = number;
    EXPECT_EQ(capacity("L40S-1Q"), fmt::format("1024 MiB, {0} of {0}", number));
    EXPECT_EQ(capacity("L40S-0Q"), fmt::format("512 MiB, {0} of {0}", number));
    EXPECT_EQ(capacity("L40S-12Q"), "12288 MiB, 4 of 4");
    EXPECT_EQ(capacity("L40S-48Q"), "49152 MiB, 1 of 1") << "the memory stays as it is";
  }
}

// The driver lists the types of this size alone, so that none is known to be the largest.
TEST_F(TypeCapacity, ABoardWithoutATableThatCarriesVgpusIsNotKnown) {
  board(kUnknown);
  offer({"X9-12Q"});
  carry("X9-12Q");
  EXPECT_EQ(capacity("X9-12Q"), "12288 MiB, up to 47 of ?");
}

TEST_F(TypeCapacity, PresentVgpusTakeWholeGpuInstances) {
  board(kRtxPro6000);
  offer({"DC-1-2A", "DC-1-24A", "DC-2-48A", "DC-2-24C", "DC-4-96A"});
  for (int i = 0; i < 3; ++i) carry("DC-1-2A");
  EXPECT_EQ(capacity("DC-1-2A"), "2048 MiB, 45 of 48");
  EXPECT_EQ(capacity("DC-1-24A"), "24576 MiB, 3 of 4");
  EXPECT_EQ(capacity("DC-2-48A"), "49152 MiB, 1 of 2");
  EXPECT_EQ(capacity("DC-2-24C"), "24576 MiB, 2 of 4");
  EXPECT_EQ(capacity("DC-4-96A"), "98304 MiB, 0 of 1");
}

TEST_F(TypeCapacity, TheDriverTellsHowManyGpuInstancesVgpusTake) {
  board(kRtxPro6000);
  offer({"DC-1-2A", "DC-1-24A"});
  carry("DC-1-2A", 3);
  carry("DC-1-2A", 4);
  EXPECT_EQ(capacity("DC-1-24A"), "24576 MiB, 2 of 4");
  EXPECT_EQ(capacity("DC-1-2A"), "2048 MiB, 46 of 48");
}

TEST_F(TypeCapacity, VgpusOfSeveralSizesTakeMemory) {
  board(kL40s);
  offer({"L40S-24Q", "L40S-12Q", "L40S-12A", "L40S-48Q"});
  carry("L40S-24Q");
  EXPECT_EQ(capacity("L40S-12Q"), "12288 MiB, 2 of 4");
  EXPECT_EQ(capacity("L40S-12A"), "12288 MiB, 2 of 4");
  EXPECT_EQ(capacity("L40S-24Q"), "24576 MiB, 1 of 2");
  EXPECT_EQ(capacity("L40S-48Q"), "49152 MiB, 0 of 1");
}

TEST_F(TypeCapacity, GpuInstancesAreComparedWithTheGpuAloneAndTogether) {
  board(kRtxPro6000);
  offer({"DC-1-3Q", "DC-1-24A", "DC-2-12A", "DC-2-48Q", "DC-4-96Q", "DC-1-2Q", "DC-1-4Q", "DC-1-6Q",
         "DC-1-8Q"});
  EXPECT_EQ(lacking("{DC-1-3Q: 32}"), "");
  EXPECT_THAT(lacking("{DC-1-3Q: 33}"), HasSubstr("no room for 33 x DC-1-3Q: 32 fit"));
  EXPECT_THAT(lacking("{DC-1-24A: 5}"), HasSubstr("no room for 5 x DC-1-24A: 4 fit"));
  EXPECT_THAT(lacking("{DC-1-24QGFX: 5}"), HasSubstr("no room for 5 x DC-1-24QGFX: 4 fit"));
  EXPECT_EQ(lacking("{DC-1-24A: 2, DC-2-48Q: 1}"), "");
  EXPECT_THAT(lacking("{DC-1-24A: 3, DC-2-48Q: 1}"), HasSubstr("do not fit together"));
  EXPECT_THAT(lacking("{DC-1-3Q: 1, DC-4-96Q: 1}"), HasSubstr("do not fit together"));
  EXPECT_THAT(lacking("{DC-1-2Q: 1, DC-1-3Q: 1, DC-1-4Q: 1, DC-1-6Q: 1, DC-1-8Q: 1}"),
              HasSubstr("need 5 GPU instances 1g.24gb+gfx, and 4 fit"))
      << "each size has an instance of its own";
}

// A100: seven compute slices and eight memory slices.
TEST_F(TypeCapacity, ComputeSlicesAndMemorySlicesBothCount) {
  board(kA100);
  offer({"A100X-4-20C", "A100X-3-20C", "A100X-2-10C", "A100X-1-5C", "A100X-1-5CME"});
  EXPECT_EQ(lacking("{A100X-4-20C: 1, A100X-3-20C: 1}"), "");
  EXPECT_EQ(lacking("{A100X-1-5CME: 1, A100X-1-5C: 6}"), "");
  EXPECT_THAT(lacking("{A100X-4-20C: 1, A100X-3-20C: 1, A100X-1-5C: 1}"), HasSubstr("do not fit together"));
  EXPECT_THAT(lacking("{A100X-3-20C: 2, A100X-1-5C: 1}"), HasSubstr("do not fit together"));
}

TEST(DriverName, HasItsNumbersAlsoWhereNoProfileCanWriteIt) {
  const auto numbers = [](const char* text) {
    const auto name = VgpuTypeName::of_driver(text);
    if (!name) return std::string("none");
    return fmt::format("{} {} {}{}", name->board, name->slices.value_or(0), name->size_mib(),
                       name->attribute == "ME" ? " ME" : "");
  };
  EXPECT_EQ(numbers("L40S-12Q"), "L40S 0 12288");
  EXPECT_EQ(numbers("RTX6000-Ada-24Q"), "RTX6000-Ada 0 24576");
  EXPECT_EQ(numbers("T4-2B4"), "T4 0 2048");
  EXPECT_EQ(numbers("M60-0B"), "M60 0 512");
  EXPECT_EQ(numbers("DC-2-48"), "DC 2 49152");
  EXPECT_EQ(numbers("DC-48"), "DC 0 49152");
  EXPECT_EQ(numbers("H100-1-10CME"), "H100 1 10240 ME");
  EXPECT_EQ(numbers("DC-1-24ANOME"), "DC 1 24576");
  EXPECT_EQ(numbers("A100-1-5CMEALL"), "A100 1 5120");
  EXPECT_EQ(numbers("DC-2-48QGFX"), "DC 2 49152");
  for (const char* text : {"3060", "", "-", "i915-GVTg_V5_4", "X-", "X-Q", "X-4294967295Q"})
    EXPECT_EQ(numbers(text), "none") << text;
}

}  // namespace
}  // namespace ferry::vgpu
