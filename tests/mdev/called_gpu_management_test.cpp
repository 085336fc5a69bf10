// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>

#include "mdev/gpu_management.h"
#include "tests/support/fake_kernel.h"
#include "tests/support/must.h"

namespace ferry::mdev {
namespace {

using test::must;
using testing::ElementsAre;
using testing::HasSubstr;

/// Records its calls.
class Diary final : public GpuManagement {
 public:
  ManagedGpu gpu;
  std::optional<Error> error;
  std::vector<std::string> reported;

  Result<ManagedGpu> read(const vfio::PciAddress& address) override {
    reported.push_back("read " + address.text());
    if (error) return fail(*error);
    return gpu;
  }
  Result<> make_instance(const vfio::PciAddress& /*gpu*/, std::uint32_t profile) override {
    return note("make", profile);
  }
  Result<> remove_instance(const vfio::PciAddress& /*gpu*/, std::uint32_t instance) override {
    return note("remove", instance);
  }
  Result<> set_mixed_sizes(const vfio::PciAddress& /*gpu*/, bool on) override {
    return note("mixed", on ? 1 : 0);
  }
  Result<> set_mig(const vfio::PciAddress& /*gpu*/, bool on) override { return note("mig", on ? 1 : 0); }

 private:
  Result<> note(const std::string& what, std::uint32_t number) {
    reported.push_back(what + " " + std::to_string(number));
    if (error) return fail(*error);
    return {};
  }
};

class CalledGpuManagementTest : public testing::Test {
 protected:
  CalledGpuManagementTest() {
    kernel_.on_call([&](const LibraryCall& call) { return answer_gpu_call(diary_, call.request); });
  }
  const vfio::PciAddress gpu_ = must(vfio::PciAddress::parse("0000:17:00.0"));
  test::FakeKernel kernel_;
  Diary diary_;
  CalledGpuManagement management_{kernel_};
};

TEST_F(CalledGpuManagementTest, CarriesAllThatIsRead) {
  diary_.gpu = {
      .vgpu_host = true,
      .mig = GpuSwitch::on,
      .mig_pending = GpuSwitch::off,
      .mixed_sizes = GpuSwitch::unsupported,
      .profiles =
          {{.id = 14, .name = "2g.35gb", .most = 3, .left = 1, .slices = 2, .size = 2, .starts = {0, 4}}},
      .instances = {{.id = 2, .profile = 14}, {.id = 5, .profile = 14, .start = 4, .divided = true}},
      .types = {{.id = 1153,
                 .name = "NVIDIA L40S-12Q",
                 .framebuffer = 12ULL << 30U,
                 .most_per_gpu = 4,
                 .size = 12,
                 .placements = {0, 12, 36}},
                {.id = 1500,
                 .name = "odd \xff name",
                 .framebuffer = 1,
                 .instance_profile = 14,
                 .most_per_instance = 1}}};
  const ManagedGpu read = must(management_.read(gpu_));
  diary_.gpu.types[1].name = "odd \xef\xbf\xbd name";  // what is no UTF-8 becomes U+FFFD
  EXPECT_EQ(read, diary_.gpu);
  EXPECT_THAT(kernel_.changes(), testing::IsEmpty());
}

TEST_F(CalledGpuManagementTest, CarriesEachActAsAChangeOfTheHost) {
  must(management_.make_instance(gpu_, 14));
  must(management_.remove_instance(gpu_, 2));
  must(management_.set_mixed_sizes(gpu_, true));
  must(management_.set_mixed_sizes(gpu_, false));
  must(management_.set_mig(gpu_, true));
  EXPECT_THAT(diary_.reported, ElementsAre("make 14", "remove 2", "mixed 1", "mixed 0", "mig 1"));
  EXPECT_EQ(kernel_.changes().size(), 5U);
}

TEST_F(CalledGpuManagementTest, CarriesErrors) {
  diary_.error = Error{.code = Errc::refused, .message = "NVML says in use", .hint = "stop the VM"};
  for (const Result<>& result : {management_.make_instance(gpu_, 14), management_.set_mig(gpu_, false)}) {
    EXPECT_EQ(result.error().code, Errc::refused);
    EXPECT_EQ(result.error().message, "0000:17:00.0: NVML says in use");
    EXPECT_EQ(result.error().hint, "stop the VM");
  }
  EXPECT_EQ(management_.read(gpu_).error().code, Errc::refused);
}

TEST_F(CalledGpuManagementTest, TakesNoOddAnswer) {
  for (const char* answer :
       {"", "x", "[]", "{}", R"({"gpu":{}})", R"({"gpu":{"vgpu_host":"no"}})", R"({"gpu":3})"}) {
    kernel_.on_call([&](const LibraryCall& /*call*/) -> std::string { return answer; });
    const auto read = management_.read(gpu_);
    ASSERT_FALSE(read) << answer;
    EXPECT_EQ(read.error().code, Errc::failed) << answer;
    EXPECT_THAT(read.error().message, HasSubstr("read what NVML says of 0000:17:00.0")) << answer;
  }
}

TEST_F(CalledGpuManagementTest, TakesNoOddRequest) {
  for (const char* request : {"", "x", "[]", "{}", R"({"act":"read"})", R"({"act":"read","gpu":"x"})",
                              R"({"act":"erase","gpu":"0000:17:00.0","number":1})",
                              R"({"act":"set_mig","gpu":"0000:17:00.0","number":"on"})"}) {
    EXPECT_THAT(answer_gpu_call(diary_, request), HasSubstr(R"("error")")) << request;
  }
  EXPECT_THAT(diary_.reported, testing::IsEmpty());
}

TEST_F(CalledGpuManagementTest, AChangeThatDoesNotReturnIsLeftAlone) {
  kernel_.hang_change(1);
  EXPECT_EQ(management_.make_instance(gpu_, 14).error().code, Errc::stuck);
  EXPECT_THAT(diary_.reported, testing::IsEmpty());
}

TEST_F(CalledGpuManagementTest, AHostWithoutTheLibrarySaysSo) {
  kernel_.on_call({});
  EXPECT_EQ(management_.read(gpu_).error().code, Errc::unsupported);
}

}  // namespace
}  // namespace ferry::mdev
