/* What a code object says of itself: target, kernels, and the layout of their arguments. */
#include "standin.h"

#include <elf.h>
#include <stdlib.h>
#include <string.h>

/* EF_AMDGPU_MACH and the feature bits of code object version 4 and later: LLVM's AMDGPU usage guide. */
enum { MACH = 0xff, XNACK = 0x300, XNACK_OFF = 0x200, XNACK_ON = 0x300 };
enum { SRAMECC = 0xc00, SRAMECC_OFF = 0x800, SRAMECC_ON = 0xc00, AMDGPU = 224, METADATA = 32 };
static const struct { const char *name; unsigned mach; } targets[] = {
    {"gfx90a", 0x3f}, {"gfx942", 0x4c}, {"gfx950", 0x4f}};

/* ---- a reader of MessagePack: what the notes use, everything else is an error ---- */

struct reader { const uint8_t *at, *end; bool bad; };

static uint64_t take(struct reader *r, unsigned bytes) {
    uint64_t value = 0;
    if ((size_t)(r->end - r->at) < bytes) {
        r->bad = true;
        r->at = r->end;
        return 0;
    }
    while (bytes--) value = value << 8 | *r->at++;
    return value;
}

/* The length after `tag` when it is one of the containers, else an error. `fix` is the short form. */
static size_t length(struct reader *r, unsigned fix, unsigned mask, unsigned wide) {
    unsigned tag = (unsigned)take(r, 1);
    if ((tag & ~mask & 0xff) == fix) return tag & mask;
    if (tag == wide) return (size_t)take(r, 2);
    if (tag == wide + 1) return (size_t)take(r, 4);
    r->bad = true;
    return 0;
}
static size_t map(struct reader *r) { return length(r, 0x80, 15, 0xde); }
static size_t array(struct reader *r) { return length(r, 0x90, 15, 0xdc); }

static const char *text(struct reader *r, size_t *size) {
    if (r->at < r->end && *r->at == 0xd9) {
        take(r, 1);
        *size = (size_t)take(r, 1);
    } else {
        *size = length(r, 0xa0, 31, 0xda);
    }
    const char *start = (const char *)r->at;
    if ((size_t)(r->end - r->at) < *size) {
        r->bad = true;
        *size = 0;
    }
    r->at += *size;
    return start;
}

static uint64_t number(struct reader *r) {
    unsigned tag = (unsigned)take(r, 1);
    if (tag < 0x80) return tag;
    if (tag >= 0xcc && tag <= 0xcf) return take(r, 1u << (tag - 0xcc));
    r->bad = true;
    return 0;
}

static void skip(struct reader *r) {
    if (r->bad || r->at >= r->end) {
        r->bad = true;
        return;
    }
    unsigned tag = *r->at;
    size_t n, size;
    if (tag < 0x80 || (tag >= 0xcc && tag <= 0xcf)) number(r);
    else if ((tag & 0xf0) == 0x80 || tag == 0xde || tag == 0xdf)
        for (n = 2 * map(r); n && !r->bad; n--) skip(r);
    else if ((tag & 0xf0) == 0x90 || tag == 0xdc || tag == 0xdd)
        for (n = array(r); n && !r->bad; n--) skip(r);
    else if ((tag & 0xe0) == 0xa0 || (tag >= 0xd9 && tag <= 0xdb)) text(r, &size);
    else if (tag == 0xc0 || tag == 0xc2 || tag == 0xc3 || tag >= 0xe0) take(r, 1);
    else if (tag >= 0xd0 && tag <= 0xd3) take(r, 1 + (1u << (tag - 0xd0)));
    else r->bad = true;
}

static bool is(const char *name, const char *key, size_t size) {
    return strlen(name) == size && !memcmp(name, key, size);
}

/* ---- the notes ---- */

static void read_argument(struct reader *r, struct kernel *kernel) {
    struct argument argument = {0};
    bool hidden = false;
    for (size_t n = map(r); n && !r->bad; n--) {
        size_t size;
        const char *key = text(r, &size);
        if (is(".offset", key, size)) argument.offset = (unsigned)number(r);
        else if (is(".size", key, size)) argument.size = (unsigned)number(r);
        else if (is(".value_kind", key, size)) {
            const char *kind = text(r, &size);
            hidden = size >= 7 && !memcmp(kind, "hidden_", 7);
        } else skip(r);
    }
    if (hidden || r->bad) return;
    kernel->arguments[kernel->argument_count++] = argument;
    if (argument.offset + argument.size > kernel->arguments_end)
        kernel->arguments_end = argument.offset + argument.size;
}

static void read_kernel(struct reader *r, struct kernel *kernel) {
    for (size_t n = map(r); n && !r->bad; n--) {
        size_t size;
        const char *key = text(r, &size);
        if (is(".args", key, size)) {
            size_t count = array(r);
            if ((size_t)(r->end - r->at) < count) r->bad = true;
            else kernel->arguments = calloc(count + 1, sizeof *kernel->arguments);
            while (count-- && !r->bad) read_argument(r, kernel);
        } else if (is(".symbol", key, size)) {
            const char *name = text(r, &size);
            if (size > 3 && size - 3 < MAX_NAME) memcpy(kernel->symbol, name, size - 3);
        } else if (is(".kernarg_segment_size", key, size)) kernel->kernarg_size = (unsigned)number(r);
        else if (is(".group_segment_fixed_size", key, size)) kernel->lds = (unsigned)number(r);
        else if (is(".vgpr_count", key, size)) kernel->vgprs = (unsigned)number(r);
        else if (is(".max_flat_workgroup_size", key, size)) kernel->max_threads = (unsigned)number(r);
        else skip(r);
    }
}

static bool read_metadata(const uint8_t *at, const uint8_t *end, struct image *out) {
    struct reader r = {at, end, false};
    for (size_t n = map(&r); n && !r.bad; n--) {
        size_t size;
        const char *key = text(&r, &size);
        if (!is("amdhsa.kernels", key, size)) {
            skip(&r);
            continue;
        }
        size_t count = array(&r);
        if ((size_t)(r.end - r.at) < count) return false;
        out->kernels = calloc(count + 1, sizeof *out->kernels);
        while (count-- && !r.bad) read_kernel(&r, &out->kernels[out->kernel_count++]);
    }
    return !r.bad;
}

static bool read_notes(const uint8_t *at, size_t left, struct image *out) {
    while (left >= sizeof(Elf64_Nhdr)) {
        const Elf64_Nhdr *note = (const void *)at;
        size_t name = (note->n_namesz + 3u) & ~3u, size = (note->n_descsz + 3u) & ~(size_t)3;
        if (left - sizeof *note < name + size) return false;
        const uint8_t *description = at + sizeof *note + name;
        if (note->n_type == METADATA && note->n_namesz == 7 && !memcmp(at + sizeof *note, "AMDGPU", 7))
            return read_metadata(description, description + note->n_descsz, out);
        at += sizeof *note + name + size;
        left -= sizeof *note + name + size;
    }
    return true;
}

/* ---- the ELF ---- */

static bool flag_fits(const char *arch, const char *feature, unsigned bits, unsigned on, unsigned off) {
    const char *found = strstr(arch, feature);
    char sign = found ? found[strlen(feature)] : 0;
    return (bits != on || sign == '+') && (bits != off || sign != '+');
}

static bool target_fits(unsigned flags, const char *arch) {
    size_t length = strcspn(arch, ":");
    for (size_t i = 0; i < sizeof targets / sizeof *targets; i++)
        if (is(targets[i].name, arch, length) && targets[i].mach == (flags & MACH))
            return flag_fits(arch, "xnack", flags & XNACK, XNACK_ON, XNACK_OFF) &&
                   flag_fits(arch, "sramecc", flags & SRAMECC, SRAMECC_ON, SRAMECC_OFF);
    return false;
}

/* Kernels are what the symbol table has as "<name>.kd"; the notes alone do not make one. */
static bool has_descriptor(const uint8_t *base, const Elf64_Shdr *sections, const Elf64_Shdr *table,
                           const char *symbol) {
    const Elf64_Sym *symbols = (const void *)(base + table->sh_offset);
    const char *names = (const char *)base + sections[table->sh_link].sh_offset;
    size_t size = strlen(symbol);
    for (size_t i = 0; i < table->sh_size / sizeof *symbols; i++) {
        const char *name = names + symbols[i].st_name;
        if (!strncmp(name, symbol, size) && !strcmp(name + size, ".kd")) return true;
    }
    return false;
}

/* HIP gives no size with the bytes, so only what the headers claim can be read. */
hipError_t image_read(const void *bytes, const char *arch, bool any, struct image *out) {
    const uint8_t *base = bytes;
    memset(out, 0, sizeof *out);
    if (memcmp(base, ELFMAG, SELFMAG) || ((const Elf64_Ehdr *)bytes)->e_machine != AMDGPU) {
        out->made_up = any;
        return any ? hipSuccess : hipErrorInvalidImage;
    }
    const Elf64_Ehdr *header = bytes;
    if (!target_fits(header->e_flags, arch)) return hipErrorNoBinaryForGpu;
    const Elf64_Shdr *sections = (const void *)(base + header->e_shoff);
    for (unsigned i = 0; i < header->e_shnum && !out->kernels; i++)
        if (sections[i].sh_type == SHT_NOTE &&
            !read_notes(base + sections[i].sh_offset, sections[i].sh_size, out)) {
            image_free(out);
            return hipErrorInvalidImage;
        }
    unsigned kept = 0;
    for (unsigned k = 0; k < out->kernel_count; k++) {
        bool found = false;
        for (unsigned i = 0; i < header->e_shnum && !found; i++)
            if (sections[i].sh_type == SHT_DYNSYM || sections[i].sh_type == SHT_SYMTAB)
                found = has_descriptor(base, sections, &sections[i], out->kernels[k].symbol);
        if (found) {
            struct kernel swap = out->kernels[kept];
            out->kernels[kept++] = out->kernels[k];
            out->kernels[k] = swap;
        }
    }
    for (unsigned k = kept; k < out->kernel_count; k++) free(out->kernels[k].arguments);
    out->kernel_count = kept;
    return hipSuccess;
}

void image_free(struct image *image) {
    for (unsigned i = 0; i < image->kernel_count; i++) free(image->kernels[i].arguments);
    free(image->kernels);
    memset(image, 0, sizeof *image);
}
