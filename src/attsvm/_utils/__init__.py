"""What every package uses: files, progress, devices, memory, extensions, checks and linear algebra of stacks."""
