// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "vfio/pci/pci_function.h"

namespace ferry::vfio {
namespace {

TEST(PciModalias, SaysWhatFiveAttributesSay) {
  EXPECT_EQ(parse_pci_modalias("pci:v000010DEd00002684sv00001458sd0000167Cbc03sc02i01"),
            (PciModalias{.vendor = 0x10de,
                         .device = 0x2684,
                         .subsystem_vendor = 0x1458,
                         .subsystem_device = 0x167c,
                         .class_code = 0x030201}));
}

TEST(PciModalias, IsTakenWholeOrNotAtAll) {
  for (const char* const text : {
           "",
           "pci:",
           "pci:v000010DEd00002684sv00001458sd0000167Cbc03sc02",
           "pci:v000010DEd00002684sv00001458sd0000167Cbc03sc02i0",
           "pci:v000010DEd00002684sv00001458sd0000167Cbc03sc02i010",
           "pci:v000010DEd00002684sv00001458sd0000167Cbc03sc02i01\n",
           "pci:v10DEd2684sv1458sd167Cbc03sc02i01",
           "pci:v000110DEd00002684sv00001458sd0000167Cbc03sc02i01",  // no ID of sixteen bits
           "pci:v000010DEd00002684sv*sd*bc03sc02i*",
           "pci:v-00010DEd00002684sv00001458sd0000167Cbc03sc02i01",
           "pci:v000010DEd00002684sv00001458sd0000167Gbc03sc02i01",
           "pci:d00002684v000010DEsv00001458sd0000167Cbc03sc02i01",
           "vfio_pci:v000010DEd00002684sv00001458sd0000167Cbc03sc02i01",
           "usb:v1D6Bp0002d0601dc09dsc00dp01ic09isc00ip00in00",
       })
    EXPECT_FALSE(parse_pci_modalias(text)) << text;
}

}  // namespace
}  // namespace ferry::vfio
