"""What every package uses: files, progress, devices, extensions, checks and linear algebra of stacks."""
