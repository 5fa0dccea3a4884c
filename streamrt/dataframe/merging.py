"""Operations on several dataframes."""

from __future__ import annotations

from typing_extensions import Self

from streamrt.dataframe.frame import Frame
from streamrt.operators import Concat


class MergingFrame(Frame):
    """Operations on several dataframes."""

    def concat(self, other: MergingFrame) -> Self:
        """Combine the records of this dataframe and of another one, in the order of their timestamps.

        One task processes partition N of all topics of both. The operations that follow have separate state, which the
        records of both share. Records with equal timestamps are ordered by topic name, unless a `join_asof` of these
        topics needs its right side first. The order holds among records that are in the topics; the task does not wait
        for records to arrive.

        If the operations that follow use state or `group_by`, the topics must have equal numbers of partitions.
        Otherwise the numbers may differ; each topic then has separate tasks, and there is no order between topics.

        Args:
            other: a dataframe of the same application, such as one of another topic or another branch of this one. A branch
                that starts at the same frame as this one delivers each record a second time.

        Returns:
            A new frame.

        Raises:
            InvalidOperationError: if `other` is not a dataframe of the same application.

        Example:
            ```python
            orders = app.dataframe(app.topic("orders"))
            refunds = app.dataframe(app.topic("refunds"))
            balance = orders.concat(refunds).apply(add_up, stateful=True)
            ```
        """
        return self._merge((other,), Concat())
