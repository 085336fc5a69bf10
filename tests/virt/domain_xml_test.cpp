// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>

#include "tests/support/must.h"
#include "virt/domain.h"

namespace ferry::virt {
namespace {

using test::must;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

std::vector<std::string> texts(const std::vector<vfio::PciAddress>& addresses) {
  std::vector<std::string> out;
  out.reserve(addresses.size());
  for (const vfio::PciAddress& address : addresses) out.push_back(address.text());
  return out;
}

// As libvirt 9.0 gives a running domain, shortened.
constexpr std::string_view kRunning = R"(<domain type='kvm' id='3'>
  <name>default_gpu &amp; co</name>
  <uuid>6c9a1f0e-7c39-5f9e-8a55-0d4a3d7b5f10</uuid>
  <devices>
    <disk type='nvme' device='disk'>
      <driver name='qemu' type='raw'/>
      <source type='pci' managed='yes' namespace='1'>
        <address domain='0x0000' bus='0x02' slot='0x00' function='0x0'/>
      </source>
      <address type='pci' domain='0x0000' bus='0x06' slot='0x00' function='0x0'/>
    </disk>
    <controller type='pci' index='1' model='pcie-root-port'>
      <address type='pci' domain='0x0000' bus='0x00' slot='0x02' function='0x0' multifunction='on'/>
    </controller>
    <interface type='hostdev' managed='no'>
      <source>
        <address type='pci' domain='0x0000' bus='0x5e' slot='0x02' function='0x3'/>
      </source>
    </interface>
    <hostdev mode='subsystem' type='pci' managed='no'>
      <driver name='vfio'/>
      <source>
        <address domain='0x10000' bus='0x65' slot='0x1f' function='0x7'/>
      </source>
      <alias name='ua-hostdev'/>
      <address type='pci' domain='0x0000' bus='0x01' slot='0x00' function='0x0'/>
    </hostdev>
    <hostdev mode='subsystem' type='usb' managed='no'>
      <source>
        <vendor id='0x1234'/>
        <address bus='1' device='2'/>
      </source>
    </hostdev>
    <hostdev mode='subsystem' type='mdev' managed='no' model='vfio-pci' display='off'>
      <source>
        <address uuid='5B6C0F0E-3b1d-4f0e-9a57-2f6f5f1f7a10'/>
      </source>
    </hostdev>
  </devices>
</domain>)";

TEST(DomainXmlReader, FindsWhateverHasAHostsPciFunctionOrMediatedDevice) {
  const Domain domain = must(read_domain_xml(kRunning));
  EXPECT_EQ(domain.name, "default_gpu & co");
  EXPECT_EQ(domain.uuid, "6c9a1f0e-7c39-5f9e-8a55-0d4a3d7b5f10");
  EXPECT_EQ(domain.pid, std::nullopt);
  EXPECT_THAT(texts(domain.pci), ElementsAre("0000:02:00.0", "0000:5e:02.3", "10000:65:1f.7"));
  EXPECT_THAT(domain.mdev, ElementsAre("5b6c0f0e-3b1d-4f0e-9a57-2f6f5f1f7a10"));
}

TEST(DomainXmlReader, TakesNumbersAsLibvirtDoes) {
  const Domain domain = must(read_domain_xml(
      "<domain><name>a</name><devices><hostdev mode='subsystem' type='pci'>"
      "<source><address bus='10' slot='0x1' function='0'/></source></hostdev></devices></domain>"));
  EXPECT_THAT(texts(domain.pci), ElementsAre("0000:0a:01.0"));
}

TEST(DomainXmlReader, FindsNothingInADomainWithoutHostDevices) {
  const Domain domain =
      must(read_domain_xml("<domain type='test'><name>plain</name><uuid>x</uuid></domain>"));
  EXPECT_THAT(domain.pci, IsEmpty());
  EXPECT_THAT(domain.mdev, IsEmpty());
}

struct Malformed {
  const char* name;
  std::string xml;
  const char* why;
};

std::string with_address(const char* attributes) {
  return std::string("<domain><name>a</name>\n<devices><hostdev type='pci'><source>\n<address ") +
         attributes + "/></source></hostdev></devices></domain>";
}

class MalformedDomainXml : public testing::TestWithParam<Malformed> {};

TEST_P(MalformedDomainXml, IsRefusedWithItsPlace) {
  const auto domain = read_domain_xml(GetParam().xml);
  ASSERT_FALSE(domain);
  EXPECT_EQ(domain.error().code, Errc::malformed_host);
  EXPECT_THAT(domain.error().message, HasSubstr("domain XML: "));
  EXPECT_THAT(domain.error().message, HasSubstr(GetParam().why));
}

TEST(DomainXmlReader, IsNotBlamedForAnEarlierText) {
  ASSERT_FALSE(read_domain_xml("domain: a"));
  EXPECT_THAT(read_domain_xml("").error().message, HasSubstr("line 0: "));
}

INSTANTIATE_TEST_SUITE_P(
    Rows, MalformedDomainXml,
    testing::Values(
        Malformed{"Empty", "", "line 0: no XML, but nothing"},
        Malformed{"NoXml", "domain: a", "line 1: Start tag expected"},
        Malformed{"CutOff", "<domain>\n<name>a</name>\n<devices>", "line 3: "},
        Malformed{"AnotherDocument", "<network><name>a</name></network>", "no <domain> with a <name>"},
        Malformed{"NoName", "<domain><uuid>x</uuid></domain>", "no <domain> with a <name>"},
        Malformed{"NoHexadecimal", with_address("bus='0xzz' slot='0x00' function='0x0'"),
                  "line 3: bus='0xzz'"},
        Malformed{"OnlyAPrefix", with_address("bus='0x' slot='0x00' function='0x0'"), "bus='0x'"},
        Malformed{"NoBus", with_address("slot='0x00' function='0x0'"), "bus=''"},
        Malformed{"NoFunction", with_address("bus='0x01' slot='0x00'"), "function=''"},
        Malformed{"HexadecimalWithoutPrefix", with_address("bus='3b' slot='0x00' function='0x0'"),
                  "bus='3b'"},
        Malformed{"SlotTooLarge", with_address("bus='0x01' slot='0x20' function='0x0'"), "up to 0x1f"},
        Malformed{"FunctionTooLarge", with_address("bus='0x01' slot='0x00' function='0x8'"), "up to 0x7"},
        Malformed{"BusTooLarge", with_address("bus='0x100' slot='0x00' function='0x0'"), "up to 0xff"},
        Malformed{"DomainTooLarge", with_address("domain='0x100000000' bus='1' slot='0' function='0'"),
                  "domain='0x100000000'"},
        Malformed{"Negative", with_address("bus='-1' slot='0x00' function='0x0'"), "bus='-1'"},
        Malformed{"BlankInside", with_address("bus='0x01 ' slot='0x00' function='0x0'"), "bus='0x01 '"}),
    [](const auto& row) { return row.param.name; });

}  // namespace
}  // namespace ferry::virt
