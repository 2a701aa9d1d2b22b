# From the loader (PVH: 32 bits, flat, no paging, %ebx = start info) into 64 bits at the kernel's own addresses.
# Physical memory below 4 GiB is mapped three times with one table: at 0 (until a space is loaded), at the direct
# map, and the first GiB at the image. All of that lies under one entry of the root.

.set BASE, 0xffffffff80000000

.section .note.pvh, "a", @note
.align 4
.long 4, 8, 18
.asciz "Xen"
.quad pvh_entry - BASE

.section .bss.boot, "aw", @nobits
.align 4096
.global boot_root, boot_upper
boot_root:  .skip 4096
boot_upper: .skip 4096
boot_lower: .skip 4 * 4096
boot_stack: .skip 65536
boot_stack_top:

.section .rodata.boot, "a"
.align 16
boot_gdt:
    .quad 0, 0x00af9b000000ffff, 0x00cf93000000ffff
boot_gdt_end:
boot_gdtr:
    .word boot_gdt_end - boot_gdt - 1
    .quad boot_gdt - BASE

.section .text.boot, "ax"
.code32
.global pvh_entry
pvh_entry:
    cli
    cld
    movl $(boot_lower - BASE), %edi
    movl $0x183, %eax                   # present, writable, 2 MiB, global
    movl $2048, %ecx
1:  movl %eax, (%edi)
    movl $0, 4(%edi)
    addl $0x200000, %eax
    addl $8, %edi
    decl %ecx
    jnz 1b
    movl $(boot_lower - BASE + 3), %eax
    movl $(boot_upper - BASE), %edi
    movl %eax, (510 * 8)(%edi)
    movl $4, %ecx
1:  movl %eax, (%edi)
    addl $4096, %eax
    addl $8, %edi
    decl %ecx
    jnz 1b
    movl $(boot_upper - BASE + 3), %eax
    movl %eax, boot_root - BASE
    movl %eax, boot_root - BASE + 511 * 8

    movl $(boot_root - BASE), %eax
    movl %eax, %cr3
    movl $0x6a0, %eax                   # PAE, PGE, OSFXSR, OSXMMEXCPT
    movl %eax, %cr4
    movl $0xc0000080, %ecx              # EFER: LME, NXE
    movl $0x900, %eax
    xorl %edx, %edx
    wrmsr
    movl $0x80010033, %eax              # PG, WP, NE, ET, MP, PE
    movl %eax, %cr0
    lgdt boot_gdtr - BASE
    ljmp $8, $(boot_long - BASE)

.code64
boot_long:
    movw $16, %ax
    movw %ax, %ds
    movw %ax, %es
    movw %ax, %ss
    xorl %eax, %eax
    movw %ax, %fs
    movw %ax, %gs
    movabsq $boot_stack_top, %rsp
    movl %ebx, %edi
    xorl %ebp, %ebp
    movabsq $metal_start, %rax
    call *%rax
    ud2

# The other CPUs begin here, in real mode, at a copy of this below 1 MiB: straight into 64 bits.
.section .rodata.trampoline, "a"
.set AT, 0x8000
.global trampoline, trampoline_end
.code16
trampoline:
    cli
    cld
    xorw %ax, %ax
    movw %ax, %ds
    lgdtl trampoline_gdtr - trampoline + AT
    movl $0x6a0, %eax
    movl %eax, %cr4
    movl $(boot_root - BASE), %eax
    movl %eax, %cr3
    movl $0xc0000080, %ecx
    movl $0x900, %eax
    xorl %edx, %edx
    wrmsr
    movl $0x80010033, %eax
    movl %eax, %cr0
    ljmpl $8, $(trampoline_long - trampoline + AT)
.code64
trampoline_long:
    movw $16, %ax
    movw %ax, %ds
    movw %ax, %es
    movw %ax, %ss
    xorl %eax, %eax
    movw %ax, %fs
    movw %ax, %gs
    movabsq $cpu_entry, %rax
    jmp *%rax
.align 8
trampoline_gdt:
    .quad 0, 0x00af9b000000ffff, 0x00cf93000000ffff
trampoline_gdtr:
    .word 23
    .long trampoline_gdt - trampoline + AT
trampoline_end:

.section .text.boot, "ax"
.global cpu_entry
cpu_entry:
    movabsq $0xffffff80fee00020, %rax   # the local APIC's number, by the direct map
    movl (%rax), %edi
    shrl $24, %edi
    movabsq $FIRST_STACKS, %rax         # nobody's stack for a CPU that is not expected: it stops
    movq (%rax, %rdi, 8), %rsp
    testq %rsp, %rsp
    jz 1f
    xorl %ebp, %ebp
    movabsq $metal_cpu, %rax
    call *%rax
1:  cli
    hlt
    jmp 1b
