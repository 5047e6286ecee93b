/* wire.c - checks protobuf bytes before anything is unpacked.
 *
 * protobuf-c recurses once per nesting level and amplifies small inputs (an empty node of 2 bytes
 * becomes about 200), so that a few kilobytes can end a process. This walk has neither weakness:
 * one loop with a stack of ONNX_MAX_DEPTH frames over the bytes, driven by the descriptors that
 * protoc-c generated, so that it knows as many fields as the unpacker does:
 *
 *      message := (tag value)*        tag := varint(number << 3 | wire)
 *      wire 0: varint    1: 8 bytes    2: varint n, n bytes (string, bytes, message or packed
 *      numbers)    5: 4 bytes
 *
 * It refuses whatever protobuf-c would refuse, with the place of it, and adds up an upper bound of
 * what unpacking will allocate.
 */
#include "frontend/onnx/onnx.h"

#include <string.h>

enum wire { WIRE_VARINT = 0, WIRE_FIXED64 = 1, WIRE_BYTES = 2, WIRE_FIXED32 = 5 };

/* The arena's overhead of an allocation; and protobuf-c's record of each field that it reads: 32
 * bytes, in slabs that double, so that up to half of a slab is unused. */
enum { ALLOC_SLACK = 32, MEMBER_NBYTES = 2 * 32 + 8 };

struct frame { const ProtobufCMessageDescriptor *type; size_t end, nmember; };

struct scan {
    const uint8_t *bytes;
    size_t at, nunpacked;
    struct frame stack[ONNX_MAX_DEPTH];
    int depth;
    const ProtobufCFieldDescriptor *field;
    struct onnx_wire_error *error;
};

static bool fail(struct scan *s, const char *problem)
{
    *s->error = (struct onnx_wire_error){.problem = problem,
                                         .message = s->stack[s->depth - 1].type->short_name,
                                         .field = s->field ? s->field->name : NULL,
                                         .offset = s->at};
    return false;
}

static bool count(struct scan *s, size_t n, size_t size)
{
    size_t nbytes;
    if (!size_mul(n, size, &nbytes) || !size_add(s->nunpacked, nbytes, &s->nunpacked))
        return fail(s, "its unpacked size is beyond what can be addressed");
    return true;
}

/* max: the most bytes of this varint. */
static bool read_varint(struct scan *s, size_t end, int max, uint64_t *v)
{
    *v = 0;
    for (int i = 0; i < max; i++) {
        if (s->at >= end)
            return fail(s, "it is cut off");
        uint8_t b = s->bytes[s->at++];
        *v |= (uint64_t)(b & 127) << (7 * i);
        if (b < 128)
            return true;
    }
    return fail(s, "a number has too many bytes");
}

static enum wire wire_of(ProtobufCType type)
{
    switch (type) {
    case PROTOBUF_C_TYPE_SFIXED64:
    case PROTOBUF_C_TYPE_FIXED64:
    case PROTOBUF_C_TYPE_DOUBLE:
        return WIRE_FIXED64;
    case PROTOBUF_C_TYPE_SFIXED32:
    case PROTOBUF_C_TYPE_FIXED32:
    case PROTOBUF_C_TYPE_FLOAT:
        return WIRE_FIXED32;
    case PROTOBUF_C_TYPE_STRING:
    case PROTOBUF_C_TYPE_BYTES:
    case PROTOBUF_C_TYPE_MESSAGE:
        return WIRE_BYTES;
    default:
        return WIRE_VARINT;
    }
}

static size_t element_nbytes(ProtobufCType type)
{
    switch (type) {
    case PROTOBUF_C_TYPE_SFIXED64:
    case PROTOBUF_C_TYPE_FIXED64:
    case PROTOBUF_C_TYPE_DOUBLE:
    case PROTOBUF_C_TYPE_SINT64:
    case PROTOBUF_C_TYPE_INT64:
    case PROTOBUF_C_TYPE_UINT64:
        return 8;
    case PROTOBUF_C_TYPE_STRING:
    case PROTOBUF_C_TYPE_MESSAGE:
        return sizeof(void *);
    case PROTOBUF_C_TYPE_BYTES:
        return sizeof(ProtobufCBinaryData);
    default:
        return 4;
    }
}

/* Numbers of a packed field, with protobuf-c's checks: no element may be cut off. */
static bool scan_packed(struct scan *s, size_t end)
{
    enum wire wire = wire_of(s->field->type);
    size_t n = 0;
    if (wire == WIRE_VARINT) {
        for (size_t i = s->at; i < end; i++)
            n += s->bytes[i] < 128;
        if (end > s->at && s->bytes[end - 1] >= 128)
            return fail(s, "its last number is cut off");
        for (size_t i = s->at, run = 0; i < end; i++) {
            run = s->bytes[i] < 128 ? 0 : run + 1;
            if (run >= 10)
                return fail(s, "a number has too many bytes");
        }
    } else {
        size_t size = wire == WIRE_FIXED64 ? 8 : 4;
        if ((end - s->at) % size)
            return fail(s, "its last number is cut off");
        n = (end - s->at) / size;
    }
    s->at = end;
    return count(s, n, element_nbytes(s->field->type)) && count(s, 1, ALLOC_SLACK);
}

static bool push(struct scan *s, const ProtobufCMessageDescriptor *type, size_t end)
{
    if (s->depth == ONNX_MAX_DEPTH)
        return fail(s, "messages are nested more than 100 deep");
    s->stack[s->depth++] = (struct frame){type, end, 0};
    return count(s, 1, type->sizeof_message + ALLOC_SLACK);
}

/* A length and that many bytes, at s->at; leaves s->at after them, or inside a new frame. */
static bool scan_bytes(struct scan *s)
{
    size_t parent_end = s->stack[s->depth - 1].end;
    uint64_t n;
    if (!read_varint(s, parent_end, 5, &n))
        return false;
    if (n > INT32_MAX || n > parent_end - s->at)
        return fail(s, "its length goes beyond the end of what holds it");
    size_t end = s->at + (size_t)n;
    const ProtobufCFieldDescriptor *f = s->field;
    if (f && f->type == PROTOBUF_C_TYPE_MESSAGE)
        return push(s, f->descriptor, end);
    if (f && wire_of(f->type) != WIRE_BYTES)
        return scan_packed(s, end);
    if (f && f->type == PROTOBUF_C_TYPE_STRING && memchr(s->bytes + s->at, 0, (size_t)n))
        return fail(s, "a name holds a NUL character");
    s->at = end;
    return count(s, 1, (size_t)n + 1 + ALLOC_SLACK);
}

static bool scan_field(struct scan *s)
{
    struct frame *frame = &s->stack[s->depth - 1];
    s->field = NULL;
    uint64_t tag;
    if (!read_varint(s, frame->end, 5, &tag))
        return false;
    enum wire wire = (enum wire)(tag & 7);
    uint64_t number = tag >> 3;
    if (number == 0 || number >= 1u << 29)
        return fail(s, "a field number is out of range");
    frame->nmember++;
    s->field = protobuf_c_message_descriptor_get_field(frame->type, (unsigned)number);
    size_t per_member = MEMBER_NBYTES;
    if (s->field) {
        bool repeated = s->field->label == PROTOBUF_C_LABEL_REPEATED;
        bool packed = repeated && wire == WIRE_BYTES && wire_of(s->field->type) != WIRE_BYTES;
        if (wire != wire_of(s->field->type) && !packed)
            return fail(s, "the field is of another kind than the ONNX format says");
        if (repeated && !packed)
            per_member += element_nbytes(s->field->type);
    }
    if (!count(s, 1, per_member))
        return false;
    uint64_t ignored;
    switch (wire) {
    case WIRE_VARINT:
        return read_varint(s, frame->end, 10, &ignored);
    case WIRE_BYTES:
        return scan_bytes(s);
    case WIRE_FIXED32:
    case WIRE_FIXED64: {
        size_t size = wire == WIRE_FIXED64 ? 8 : 4;
        if (frame->end - s->at < size)
            return fail(s, "it is cut off");
        s->at += size;
        return true;
    }
    }
    return fail(s, "a field has an unknown wire type");
}

bool onnx_scan_wire(const ProtobufCMessageDescriptor *type, const uint8_t *bytes, size_t nbytes,
                    size_t *nbytes_unpacked, struct onnx_wire_error *error)
{
    struct scan s = {.bytes = bytes, .error = error};
    s.stack[0] = (struct frame){type, nbytes, 0};
    s.depth = 1;
    s.nunpacked = type->sizeof_message + ALLOC_SLACK;
    while (s.depth > 0) {
        if (s.at == s.stack[s.depth - 1].end)
            s.depth--;
        else if (!scan_field(&s))
            return false;
    }
    *nbytes_unpacked = s.nunpacked;
    return true;
}
