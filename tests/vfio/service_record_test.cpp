// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>

#include "tests/support/fake_kernel.h"
#include "vfio/quiesce/stopped_services.h"

namespace ferry::vfio {
namespace {

using test::FakeKernel;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

constexpr const char* kFile = "run/ferry/hostd/stopped-services.json";
using Kind = Releasable::Kind;
const std::map<Releasable, StoppedService> kAll = {
    {{.kind = Kind::service, .name = "a.service"}, StoppedService::to_start},
    {{.kind = Kind::service, .name = R"(b\x2d@1.service)"}, StoppedService::waits_for_a_device},
    {{.kind = Kind::module, .name = "nvidia_drm"}, StoppedService::to_start},
    {{.kind = Kind::persistence, .name = "0000:01:00.0"}, StoppedService::waits_for_a_device}};

TEST(ServiceRecord, ReadsBackAsItself) {
  FakeKernel kernel;
  EXPECT_THAT(read_service_record(kernel).value().services, IsEmpty());
  ASSERT_TRUE(write_service_record(kernel, kAll));
  EXPECT_EQ(read_service_record(kernel).value().services, kAll);
}

TEST(ServiceRecord, GoesWithItsLastProcess) {
  FakeKernel kernel;
  ASSERT_TRUE(write_service_record(kernel, kAll));
  ASSERT_TRUE(write_service_record(kernel, {}));
  EXPECT_FALSE(kernel.exists(kFile));
}

TEST(ServiceRecord, OfAnEarlierBootIsVoid) {
  FakeKernel kernel;
  ASSERT_TRUE(write_service_record(kernel, kAll));
  const auto left_over = kernel.read_file(kFile).value();
  kernel.new_boot();
  kernel.file(kFile, left_over);
  const auto record = read_service_record(kernel).value();
  EXPECT_THAT(record.services, IsEmpty());
  EXPECT_THAT(record.notes, SizeIs(1));
}

TEST(ServiceRecord, IsNotVoidWhereTheRunningBootIsUnknown) {
  FakeKernel kernel;
  ASSERT_TRUE(write_service_record(kernel, kAll));
  const auto before = kernel.read_file(kFile).value();
  kernel.remove("proc/sys/kernel/random/boot_id");
  const auto record = read_service_record(kernel);
  ASSERT_FALSE(record);
  EXPECT_THAT(record.error().message, HasSubstr("boot_id"));
  EXPECT_EQ(kernel.read_file(kFile).value(), before);
}

class MalformedServiceRecord : public testing::TestWithParam<const char*> {};

TEST_P(MalformedServiceRecord, IsAnErrorThatNamesTheFile) {
  const FakeKernel kernel;
  kernel.file("proc/sys/kernel/random/boot_id", "b\n");
  kernel.file(kFile, GetParam());
  const auto record = read_service_record(kernel);
  ASSERT_FALSE(record);
  EXPECT_EQ(record.error().code, Errc::malformed_host);
  EXPECT_THAT(record.error().message, HasSubstr("stopped-services.json"));
  EXPECT_THAT(record.error().hint, HasSubstr("remove it"));
}

INSTANTIATE_TEST_SUITE_P(
    Table, MalformedServiceRecord,
    testing::Values("", "{", "[]", "null", R"({"version":2,"boot_id":"b","services":{}})",
                    R"({"version":"1","boot_id":"b","services":{}})", R"({"version":1,"services":{}})",
                    R"({"version":1,"boot_id":"b"})",
                    R"({"version":1,"boot_id":"b","services":["a.service"]})",
                    R"({"version":1,"boot_id":"b","services":{"a.service":1}})",
                    R"({"version":1,"boot_id":"b","services":{"a.service":"stopped"}})",
                    R"({"version":1,"boot_id":"b","services":{"a":"to start"}})",
                    R"({"version":1,"boot_id":"b","services":{"a b.service":"to start"}})",
                    R"({"version":1,"boot_id":"b","services":{"docker.service":"to start"}})",
                    R"({"version":1,"boot_id":"b","services":{"nvidia_drm":"to start"}})",
                    R"({"version":1,"boot_id":"b","services":{},"modules":["nvidia_drm"]})",
                    R"({"version":1,"boot_id":"b","services":{},"modules":{"rootkit":"to start"}})",
                    R"({"version":1,"boot_id":"b","services":{},"modules":{"nvidia_drm":"stuck"}})",
                    R"({"version":1,"boot_id":"b","services":{},"gpus":{"1":"to start"}})",
                    R"({"version":1,"boot_id":"b","services":{},"gpus":{"01:00.0":"to start"}})",
                    R"({"version":1,"boot_id":"b","services":{},"gpus":{"0000:01:00.0":true}})"));

// What a version wrote that knew services alone.
TEST(ServiceRecord, MayHoldServicesAlone) {
  const FakeKernel kernel;
  kernel.file("proc/sys/kernel/random/boot_id", "b\n");
  kernel.file(kFile, R"({"version":1,"boot_id":"b","services":{"a.service":"to start"}})");
  EXPECT_THAT(read_service_record(kernel).value().services, SizeIs(1));
}

}  // namespace
}  // namespace ferry::vfio
