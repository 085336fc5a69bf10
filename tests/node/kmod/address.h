/* SPDX-License-Identifier: GPL-2.0 */
/* PCI addresses as the module's parameters write them. */
#ifndef FERRY_ADDRESS_H
#define FERRY_ADDRESS_H

#include <linux/pci.h>

struct pci_address {
	int domain;
	u8 bus;
	u8 devfn;
};

#define PCI_ADDRESS_FORMAT "%04x:%02x:%02x.%x"
#define PCI_ADDRESS_ARGS(a) (a)->domain, (a)->bus, PCI_SLOT((a)->devfn), PCI_FUNC((a)->devfn)

/*
 * Reads exactly @digits hexadecimal digits and, unless it is '\0', the character @after behind them.
 * Returns the first character not read, NULL if the text is anything else.
 */
const char *parse_hex(const char *text, int digits, char after, u32 *value);

/*
 * Reads "DDDD:BB:SS.F" at the start of @text. Returns the first character behind it, NULL if there is no
 * such address.
 */
const char *parse_address(const char *text, struct pci_address *address);

/* True if @text is one address and nothing else. */
bool parse_whole_address(const char *text, struct pci_address *address);

struct pci_address address_at(struct pci_bus *bus, unsigned int devfn);
struct pci_address address_of(struct pci_dev *pdev);
bool same_address(const struct pci_address *a, const struct pci_address *b);

#endif
