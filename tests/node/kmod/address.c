// SPDX-License-Identifier: GPL-2.0
#include "address.h"

#include <linux/ctype.h>
#include <linux/kernel.h>

const char *parse_hex(const char *text, int digits, char after, u32 *value)
{
	*value = 0;
	while (digits--) {
		int digit = hex_to_bin(*text);

		if (digit < 0)
			return NULL;
		*value = *value << 4 | digit;
		text++;
	}
	if (after == '\0')
		return text;
	return *text == after ? text + 1 : NULL;
}

const char *parse_address(const char *text, struct pci_address *address)
{
	u32 domain, bus, slot, function;

	text = parse_hex(text, 4, ':', &domain);
	text = text ? parse_hex(text, 2, ':', &bus) : NULL;
	text = text ? parse_hex(text, 2, '.', &slot) : NULL;
	text = text ? parse_hex(text, 1, '\0', &function) : NULL;
	if (!text || slot > 0x1f || function > 7)
		return NULL;
	*address = (struct pci_address){ domain, bus, PCI_DEVFN(slot, function) };
	return text;
}

bool parse_whole_address(const char *text, struct pci_address *address)
{
	const char *end = parse_address(text, address);

	return end && *end == '\0';
}

struct pci_address address_at(struct pci_bus *bus, unsigned int devfn)
{
	return (struct pci_address){ pci_domain_nr(bus), bus->number, devfn };
}

struct pci_address address_of(struct pci_dev *pdev)
{
	return address_at(pdev->bus, pdev->devfn);
}

bool same_address(const struct pci_address *a, const struct pci_address *b)
{
	return a->domain == b->domain && a->bus == b->bus && a->devfn == b->devfn;
}
