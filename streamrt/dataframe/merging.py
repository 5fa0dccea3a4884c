"""What brings several dataframes together."""

from __future__ import annotations

from typing_extensions import Self

from streamrt.dataframe.frame import Frame
from streamrt.operators import Concat


class MergingFrame(Frame):
    """Operations on several dataframes."""

    def concat(self, other: MergingFrame) -> Self:
        """Go on with the records of this dataframe and of another one, in the order of their timestamps.

        Partition N of all topics of both is processed by one task. What follows has state of its own, shared by the records
        of both. Records of equal timestamp come in the order of the names of their topics, unless a `join_asof` of these
        topics wants its right side first. Order holds among the records that are in the topics; nobody waits for those to
        come.

        The topics must have equal numbers of partitions if what follows has state or a `group_by`. Otherwise their numbers
        may differ; then each topic has tasks of its own, and there is no order between the topics.

        Args:
            other: a dataframe of the same application, such as one of another topic or another branch of this one. A branch
                that starts where this one does brings each record a second time.

        Returns:
            A new frame.

        Raises:
            InvalidOperationError: if `other` is no dataframe, or one of another application.

        Example:
            ```python
            orders = app.dataframe(app.topic("orders"))
            refunds = app.dataframe(app.topic("refunds"))
            balance = orders.concat(refunds).apply(add_up, stateful=True)
            ```
        """
        return self._merge((other,), Concat())
